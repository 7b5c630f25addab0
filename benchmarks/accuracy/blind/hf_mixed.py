"""Fine-tunes a model of transformers that is built from a configuration: RoBERTa, BART, CLIP, DeiT or Wav2Vec2."""

import argparse

import torch
import transformers as tr


def roberta(a):
    config = tr.RobertaConfig(
        vocab_size=a.vocab, hidden_size=a.dim, num_hidden_layers=a.layers, num_attention_heads=a.heads,
        intermediate_size=4 * a.dim, max_position_embeddings=a.length + 2,
    )  # fmt: skip
    ids = torch.randint(3, a.vocab, (a.batch_size, a.length))
    labels = torch.full_like(ids, -100)
    labels[:, ::7] = ids[:, ::7]
    return tr.RobertaForMaskedLM(config), {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}


def bart(a):
    config = tr.BartConfig(
        vocab_size=a.vocab, d_model=a.dim, encoder_layers=a.layers, decoder_layers=a.layers,
        encoder_attention_heads=a.heads, decoder_attention_heads=a.heads, encoder_ffn_dim=4 * a.dim,
        decoder_ffn_dim=4 * a.dim, max_position_embeddings=max(a.length, 64),
    )  # fmt: skip
    ids = torch.randint(3, a.vocab, (a.batch_size, a.length))
    summary = torch.randint(3, a.vocab, (a.batch_size, a.length // 4))
    return tr.BartForConditionalGeneration(config), {"input_ids": ids, "labels": summary}


def clip(a):
    tower = {"hidden_size": a.dim, "num_hidden_layers": a.layers, "num_attention_heads": a.heads}
    tower["intermediate_size"] = 4 * a.dim
    config = tr.CLIPConfig(
        text_config={"vocab_size": a.vocab, "max_position_embeddings": a.length, "eos_token_id": 2, **tower},
        vision_config={"image_size": a.image_size, "patch_size": 16, **tower},
        projection_dim=a.dim // 2,
    )
    ids = torch.randint(3, a.vocab, (a.batch_size, a.length))
    ids[:, -1] = 2
    pixels = torch.randn(a.batch_size, 3, a.image_size, a.image_size)
    return tr.CLIPModel(config), {"input_ids": ids, "pixel_values": pixels, "return_loss": True}


def deit(a):
    config = tr.DeiTConfig(
        hidden_size=a.dim, num_hidden_layers=a.layers, num_attention_heads=a.heads, intermediate_size=4 * a.dim,
        image_size=a.image_size, num_labels=100,
    )  # fmt: skip
    pixels = torch.randn(a.batch_size, 3, a.image_size, a.image_size)
    return tr.DeiTForImageClassification(config), {
        "pixel_values": pixels,
        "labels": torch.randint(100, (a.batch_size,)),
    }


def wav2vec2(a):
    config = tr.Wav2Vec2Config(
        hidden_size=a.dim, num_hidden_layers=a.layers, num_attention_heads=a.heads, intermediate_size=4 * a.dim,
        apply_spec_augment=False, layerdrop=0.0, num_labels=12,
    )  # fmt: skip
    model = tr.Wav2Vec2ForSequenceClassification(config)
    model.freeze_feature_encoder()
    audio = torch.randn(a.batch_size, int(16000 * a.seconds))
    return model, {"input_values": audio, "labels": torch.randint(12, (a.batch_size,))}


BUILDERS = {"roberta": roberta, "bart": bart, "clip": clip, "deit": deit, "wav2vec2": wav2vec2}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=list(BUILDERS), default="roberta")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--vocab", type=int, default=50265)
    parser.add_argument("--amp", choices=["no", "bf16", "fp16"], default="no")
    parser.add_argument("--inference", action="store_true")
    args = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, batch = BUILDERS[args.model](args)
    model = model.to(device)
    autocast = torch.autocast(device, torch.float16 if args.amp == "fp16" else torch.bfloat16, args.amp != "no")

    def inputs():
        return {k: v.to(device) if torch.is_tensor(v) else v for k, v in batch.items()}

    if args.inference:
        model.eval()
        for _ in range(args.steps):
            with torch.no_grad(), autocast:
                print("loss", model(**inputs()).loss.item())
        return

    model.train()
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=3e-5)
    scaler = torch.amp.GradScaler(device, enabled=args.amp == "fp16")
    for step in range(args.steps):
        with autocast:
            loss = model(**inputs()).loss
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        print(step, loss.item())


if __name__ == "__main__":
    main()

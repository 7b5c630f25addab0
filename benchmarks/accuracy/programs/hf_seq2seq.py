"""Encoder-decoder models of transformers built from their configuration: T5 text, Whisper speech."""

import argparse

import torch
from transformers import T5Config, T5ForConditionalGeneration, WhisperConfig, WhisperForConditionalGeneration


def t5(args):
    config = T5Config(
        vocab_size=args.vocab,
        d_model=args.dim,
        d_kv=args.dim // args.heads,
        d_ff=4 * args.dim,
        num_layers=args.layers,
        num_heads=args.heads,
        feed_forward_proj="gated-gelu",
        decoder_start_token_id=0,
    )
    model = T5ForConditionalGeneration(config)

    def batch():
        ids = torch.randint(1, args.vocab, (args.batch_size, args.length))
        labels = torch.randint(1, args.vocab, (args.batch_size, args.length // 2))
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}

    return model, batch


def whisper(args):
    config = WhisperConfig(
        vocab_size=args.vocab,
        d_model=args.dim,
        encoder_layers=args.layers,
        decoder_layers=args.layers,
        encoder_attention_heads=args.heads,
        decoder_attention_heads=args.heads,
        encoder_ffn_dim=4 * args.dim,
        decoder_ffn_dim=4 * args.dim,
        max_source_positions=args.length,
        max_target_positions=128,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    model = WhisperForConditionalGeneration(config)

    def batch():
        labels = torch.randint(3, args.vocab, (args.batch_size, 100))
        return {"input_features": torch.randn(args.batch_size, 80, 2 * args.length), "labels": labels}

    return model, batch


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=["t5", "whisper"], default="t5")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--vocab", type=int, default=32128)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--adafactor", action="store_true")
    parser.add_argument("--generate", type=int, default=0, help="generate this many tokens instead of training")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model, make_batch = {"t5": t5, "whisper": whisper}[args.model](args)
    model.to(device)
    if args.generate:
        model.eval()
        if args.bf16:
            model.bfloat16()
        for _ in range(args.steps):
            inputs = {k: v.to(device) for k, v in make_batch().items() if k != "labels"}
            if args.bf16:
                inputs = {k: v.bfloat16() if v.is_floating_point() else v for k, v in inputs.items()}
            out = model.generate(**inputs, max_new_tokens=args.generate, min_new_tokens=args.generate, do_sample=False)
            print(tuple(out.shape))
    else:
        model.train()
        if args.adafactor:
            optimizer = torch.optim.Adafactor(model.parameters(), lr=1e-3)
        else:
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        for step in range(args.steps):
            batch = {k: v.to(device, non_blocking=True) for k, v in make_batch().items()}
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=args.bf16):
                out = model(**batch)
            out.loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            print(f"step {step}: {out.loss.item():.4f}")

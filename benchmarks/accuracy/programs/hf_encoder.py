"""Sequence or image classification with an encoder of transformers built from its configuration: BERT or ViT."""

import argparse

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForSequenceClassification, ViTConfig, ViTForImageClassification


class Examples(Dataset):
    def __init__(self, args, count):
        self.args, self.count = args, count
        self.ids = torch.randint(5, args.vocab, (args.length,))
        self.pixels = torch.rand(3, args.image_size, args.image_size)

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        if self.args.model == "vit":
            return {"pixel_values": self.pixels, "labels": i % 2}
        length = self.args.length - (i * 7) % (self.args.length // 2)
        mask = (torch.arange(self.args.length) < length).long()
        return {"input_ids": self.ids * mask, "attention_mask": mask, "labels": i % 2}


def build_model(args):
    sizes = {
        "hidden_size": args.hidden,
        "num_hidden_layers": args.layers,
        "num_attention_heads": args.heads,
        "intermediate_size": 4 * args.hidden,
        "num_labels": 2,
    }
    if args.model == "vit":
        return ViTForImageClassification(ViTConfig(image_size=args.image_size, **sizes))
    return BertForSequenceClassification(BertConfig(vocab_size=args.vocab, **sizes))


def to_device(batch, device):
    return {name: tensor.to(device) for name, tensor in batch.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=["bert", "vit"], default="bert")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--vocab", type=int, default=30522)
    parser.add_argument("--fp16", action="store_true")
    parser.add_argument("--freeze-embeddings", action="store_true")
    parser.add_argument("--inference", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")
    model = build_model(args).to(device)
    if args.freeze_embeddings:
        model.base_model.embeddings.requires_grad_(False)
    loader = DataLoader(
        Examples(args, args.batch_size * args.steps), batch_size=args.batch_size, shuffle=not args.inference
    )

    if args.inference:
        model.eval()
        correct = 0
        for batch in loader:
            batch = to_device(batch, device)
            with torch.no_grad(), torch.autocast("cuda", dtype=torch.float16, enabled=args.fp16):
                outputs = model(**batch)
            correct += (outputs.logits.argmax(dim=-1) == batch["labels"]).sum().item()
        print("accuracy", correct / len(loader.dataset))
        return

    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=2e-5)
    scaler = torch.amp.GradScaler("cuda", enabled=args.fp16)
    model.train()
    for step, batch in enumerate(loader):
        batch = to_device(batch, device)
        with torch.autocast("cuda", dtype=torch.float16, enabled=args.fp16):
            loss = model(**batch).loss
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(trainable, 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        print(step, loss.item())


if __name__ == "__main__":
    main()

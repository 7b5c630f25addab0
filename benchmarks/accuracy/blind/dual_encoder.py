"""Contrastive image-text pre-training with two transformers (CLIP, Radford et al. 2021), written with nn.Transformer layers."""

import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def encoder(width, layers, heads):
    layer = nn.TransformerEncoderLayer(
        width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )
    return nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(width), enable_nested_tensor=False)


class ImageTower(nn.Module):
    def __init__(self, size, patch, width, layers, embed):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, patch, patch, bias=False)
        self.class_embedding = nn.Parameter(torch.randn(width) * width**-0.5)
        self.positional = nn.Parameter(torch.randn((size // patch) ** 2 + 1, width) * width**-0.5)
        self.ln_pre = nn.LayerNorm(width)
        self.transformer = encoder(width, layers, max(width // 64, 1))
        self.proj = nn.Parameter(torch.randn(width, embed) * width**-0.5)

    def forward(self, x):
        x = self.conv1(x).flatten(2).permute(0, 2, 1)
        token = self.class_embedding.to(x.dtype).expand(x.shape[0], 1, -1)
        x = torch.cat([token, x], dim=1) + self.positional
        return self.transformer(self.ln_pre(x))[:, 0] @ self.proj


class TextTower(nn.Module):
    def __init__(self, vocab, context, width, layers, embed):
        super().__init__()
        self.token_embedding = nn.Embedding(vocab, width)
        self.positional = nn.Parameter(torch.randn(context, width) * 0.01)
        self.transformer = encoder(width, layers, max(width // 64, 1))
        self.proj = nn.Parameter(torch.randn(width, embed) * width**-0.5)
        self.register_buffer("mask", torch.full((context, context), float("-inf")).triu_(1), persistent=False)

    def forward(self, text):
        x = self.token_embedding(text) + self.positional
        x = self.transformer(x, mask=self.mask, is_causal=True)
        return x[torch.arange(x.shape[0], device=x.device), text.argmax(dim=-1)] @ self.proj


class DualEncoder(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.visual = ImageTower(a.image_size, a.patch, a.vision_width, a.vision_layers, a.embed)
        self.text = TextTower(a.vocab, a.context, a.text_width, a.text_layers, a.embed)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, image, text):
        image_features = F.normalize(self.visual(image), dim=-1)
        text_features = F.normalize(self.text(text), dim=-1)
        logits = self.logit_scale.exp() * image_features @ text_features.t()
        labels = torch.arange(len(logits), device=logits.device)
        return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2


def param_groups(model, decay):
    is_gain_or_bias = lambda n, p: p.ndim < 2 or "bn" in n or "ln" in n or "bias" in n or "logit_scale" in n  # noqa: E731
    named = list(model.named_parameters())
    return [
        {"params": [p for n, p in named if is_gain_or_bias(n, p)], "weight_decay": 0.0},
        {"params": [p for n, p in named if not is_gain_or_bias(n, p)], "weight_decay": decay},
    ]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--patch", type=int, default=32)
    parser.add_argument("--vision-width", type=int, default=768)
    parser.add_argument("--vision-layers", type=int, default=12)
    parser.add_argument("--text-width", type=int, default=512)
    parser.add_argument("--text-layers", type=int, default=12)
    parser.add_argument("--context", type=int, default=77)
    parser.add_argument("--vocab", type=int, default=49408)
    parser.add_argument("--embed", type=int, default=512)
    parser.add_argument("--precision", choices=["fp32", "amp_bf16"], default="fp32")
    args = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = DualEncoder(args).to(device)
    optimizer = torch.optim.AdamW(param_groups(model, 0.2), lr=5e-4, betas=(0.9, 0.98), eps=1e-6)
    images = torch.randn(args.batch_size, 3, args.image_size, args.image_size)
    texts = torch.randint(1, args.vocab, (args.batch_size, args.context))
    if device == "cuda":
        images, texts = images.pin_memory(), texts.pin_memory()
    for step in range(args.steps):
        image, text = images.to(device, non_blocking=True), texts.to(device, non_blocking=True)
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=args.precision == "amp_bf16"):
            loss = model(image, text)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            model.logit_scale.clamp_(0, math.log(100))
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f} scale {model.logit_scale.exp().item():.2f}")


if __name__ == "__main__":
    main()

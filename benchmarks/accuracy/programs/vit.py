"""Vision Transformer (Dosovitskiy et al. 2020) on synthetic images, with the attention module of torch."""

import argparse
from dataclasses import dataclass

import torch
from torch import Tensor, nn

SIZES = {"tiny": (192, 12, 3), "small": (384, 12, 6), "base": (768, 12, 12), "large": (1024, 24, 16)}


@dataclass
class Config:
    image_size: int = 224
    patch: int = 16
    dim: int = 768
    depth: int = 12
    heads: int = 12
    classes: int = 1000
    dropout: float = 0.1


class EncoderLayer(nn.Module):
    def __init__(self, cfg: Config) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(cfg.dim)
        self.attn = nn.MultiheadAttention(cfg.dim, cfg.heads, dropout=cfg.dropout, batch_first=True)
        self.norm2 = nn.LayerNorm(cfg.dim)
        self.mlp = nn.Sequential(
            nn.Linear(cfg.dim, cfg.dim * 4),
            nn.GELU(),
            nn.Dropout(cfg.dropout),
            nn.Linear(cfg.dim * 4, cfg.dim),
            nn.Dropout(cfg.dropout),
        )

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm1(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    def __init__(self, cfg: Config) -> None:
        super().__init__()
        self.patchify = nn.Conv2d(3, cfg.dim, cfg.patch, stride=cfg.patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, cfg.dim))
        self.pos = nn.Parameter(torch.randn(1, (cfg.image_size // cfg.patch) ** 2 + 1, cfg.dim) * 0.02)
        self.layers = nn.Sequential(*(EncoderLayer(cfg) for _ in range(cfg.depth)))
        self.norm = nn.LayerNorm(cfg.dim)
        self.head = nn.Linear(cfg.dim, cfg.classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patchify(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], dim=1) + self.pos
        return self.head(self.norm(self.layers(x))[:, 0])


def get_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=list(SIZES), default="base")
    parser.add_argument("--depth", type=int)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--patch", type=int, default=16)
    parser.add_argument("--precision", choices=["fp32", "fp16", "bf16"], default="fp32")
    parser.add_argument("--optimizer", choices=["adamw", "fused", "loop", "adafactor"], default="adamw")
    return parser.parse_args()


def make_optimizer(kind: str, model: nn.Module) -> torch.optim.Optimizer:
    if kind == "adafactor":
        return torch.optim.Adafactor(model.parameters(), lr=1e-3)
    options = {"fused": {"fused": True}, "loop": {"foreach": False}}.get(kind, {})
    return torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.05, **options)


def main() -> None:
    args = get_args()
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    dim, depth, heads = SIZES[args.model]
    cfg = Config(image_size=args.image_size, patch=args.patch, dim=dim, depth=args.depth or depth, heads=heads)
    model = VisionTransformer(cfg).to(device)
    optimizer = make_optimizer(args.optimizer, model)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 10))
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[args.precision]
    scaler = torch.cuda.amp.GradScaler(enabled=args.precision == "fp16")

    for step in range(args.steps):
        images = torch.randn(args.batch_size, 3, cfg.image_size, cfg.image_size, device=device)
        labels = torch.randint(0, cfg.classes, (args.batch_size,), device=device)
        with torch.autocast(device.type, dtype=dtype, enabled=args.precision != "fp32"):
            loss = criterion(model(images), labels)
        scaler.scale(loss).backward()
        if args.precision == "fp16":
            scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        optimizer.zero_grad()
        print(f"{step=} loss={loss.item():.4f} norm={float(norm):.3f} lr={schedule.get_last_lr()[0]:.2e}")


if __name__ == "__main__":
    main()

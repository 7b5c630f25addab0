"""Trains a vision transformer on made-up images, the way many training scripts look. Nothing in it knows of Tonnage.

On a machine with a GPU it trains; without one, ask what it would need:

    tonnage estimate examples/train_vit.py -- --batch-size 64
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class MadeUpImages(Dataset):
    """Random pictures with random labels."""

    def __init__(self, count: int, size: int, classes: int) -> None:
        self.count, self.size, self.classes = count, size, classes

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.randn(3, self.size, self.size), index % self.classes


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
        x = x + self.project(mixed)
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    def __init__(
        self, size: int = 224, patch: int = 16, width: int = 768, depth: int = 12, classes: int = 1000
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.positions = nn.Parameter(torch.zeros(1, (size // patch) ** 2, width))
        self.blocks = nn.Sequential(*(Block(width, width // 64) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.norm(self.blocks(x)).mean(1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--lr", type=float, default=3e-4)
    options = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = VisionTransformer().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    loader = DataLoader(
        MadeUpImages(1_281_167, 224, 1000), options.batch_size, shuffle=True, num_workers=4, pin_memory=True
    )
    for epoch in range(options.epochs):
        for step, (images, labels) in enumerate(loader):
            images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
            with torch.autocast(device.type, dtype=torch.bfloat16):
                loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if step % 50 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.3f}")
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, f"checkpoint-{epoch}.pt")


if __name__ == "__main__":
    main()

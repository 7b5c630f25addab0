"""A small residual network to split: `build` returns the module and one example of its inputs."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(images + self.second(torch.relu(self.first(images))))


class Residual(nn.Module):
    def __init__(self, channels: int = 64, blocks: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.blocks = nn.ModuleList(Block(channels) for _ in range(blocks))
        self.head = nn.Linear(channels, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        images = self.stem(images)
        for block in self.blocks:
            images = block(images)
        return self.head(images.mean((2, 3)))


def build(batch_size: int = 1) -> tuple[nn.Module, torch.Tensor]:
    return Residual(), torch.randn(batch_size, 3, 56, 56)

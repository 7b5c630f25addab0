"""A U-Net with padded convolutions, so that the output has the size of the image."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

_GROUPS = 8


class UnetNetwork(nn.Module):
    """`filters` names the depth of every level, from the full image to the smallest."""

    def __init__(self, channels: int, filters: Sequence[int], classes: int, norm: str) -> None:
        super().__init__()
        above = (channels, *filters[:-1])
        self.down = nn.ModuleList(_pair(i, o, norm) for i, o in zip(above, filters, strict=True))
        levels = list(zip(filters[1:], filters[:-1], strict=True))[::-1]
        self.up = nn.ModuleList(nn.ConvTranspose2d(below, level, 2, stride=2) for below, level in levels)
        self.join = nn.ModuleList(_pair(2 * level, level, norm) for _, level in levels)
        self.pool = nn.MaxPool2d(2)
        self.output = nn.Conv2d(filters[0], classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        kept = [self.down[0](images)]
        for level in self.down[1:]:
            kept.append(level(self.pool(kept[-1])))
        current = kept.pop()
        for up, join in zip(self.up, self.join, strict=True):
            current = join(torch.cat([kept.pop(), up(current)], dim=1))
        classes: Tensor = self.output(current)
        return classes


def _pair(inputs: int, outputs: int, norm: str) -> nn.Sequential:
    modules: list[nn.Module] = []
    for depth in (inputs, outputs):
        modules += [nn.Conv2d(depth, outputs, 3, padding=1), *_norm(outputs, norm), nn.ReLU()]
    return nn.Sequential(*modules)


def _norm(filters: int, norm: str) -> list[nn.Module]:
    if norm == "batch":
        return [nn.BatchNorm2d(filters)]
    return [nn.GroupNorm(_GROUPS, filters)] if norm == "group" else []

"""What networks do with images besides convolving them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tonnage.benchmark.layers.scenes.bench import Bench, Function, Scene
from tonnage.benchmark.layers.scenes.elementwise import BINARY

_POOLS: dict[str, nn.Module] = {
    "max2": nn.MaxPool2d(2),
    "max3": nn.MaxPool2d(3, 2, 1),
    "average2": nn.AvgPool2d(2),
    "global": nn.AdaptiveAvgPool2d(1),
    "adaptive7": nn.AdaptiveAvgPool2d(7),
}
_MOVES: dict[str, Function] = {
    "pad": lambda x: F.pad(x, (1, 1, 1, 1)),
    "reflect": lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
    "roll": lambda x: torch.roll(x, (1, 1), (2, 3)),
    "slice": lambda x: x[:, :, ::2, ::2].contiguous(),
    "flip": lambda x: x.flip(3),
    "shuffle": lambda x: F.pixel_shuffle(x, 2),
}


def batch_norm(bench: Bench, batch: int, channels: int, size: int, channels_last: bool, training: bool) -> Scene:
    module = nn.BatchNorm2d(channels).to(bench.device).train(training)  # in float32 also under autocast
    inputs = bench.tensor(batch, channels, size, size, channels_last=channels_last)
    return bench.scene(module, inputs, leaves=tuple(module.parameters()))


def group_norm(bench: Bench, batch: int, channels: int, size: int, parts: int) -> Scene:
    return bench.layer(nn.GroupNorm(parts, channels), bench.tensor(batch, channels, size, size))


def pooling(bench: Bench, batch: int, channels: int, size: int, channels_last: bool, function: str) -> Scene:
    return bench.scene(_POOLS[function], bench.tensor(batch, channels, size, size, channels_last=channels_last))


def upsample(bench: Bench, batch: int, channels: int, size: int, mode: str) -> Scene:
    return bench.scene(lambda x: F.interpolate(x, scale_factor=2, mode=mode), bench.tensor(batch, channels, size, size))


def channel_broadcast(bench: Bench, batch: int, channels: int, size: int, function: str) -> Scene:
    """A bias or a gate per channel, as in squeeze-and-excitation."""
    return bench.scene(BINARY[function], bench.tensor(batch, channels, size, size), bench.tensor(batch, channels, 1, 1))


def concatenate(bench: Bench, batch: int, channels: int, size: int, parts: int, along: int) -> Scene:
    pieces = [bench.tensor(batch, max(channels // parts, 1), size, size) for _ in range(parts)]
    return bench.scene(lambda *x: torch.cat(x, along), *pieces)


def memory_format(bench: Bench, batch: int, channels: int, size: int, channels_last: bool) -> Scene:
    target = torch.contiguous_format if channels_last else torch.channels_last
    inputs = bench.tensor(batch, channels, size, size, channels_last=channels_last)
    return bench.scene(lambda x: x.contiguous(memory_format=target), inputs)


def rearrange(bench: Bench, batch: int, channels: int, size: int, function: str) -> Scene:
    if function == "shuffle":  # which makes one channel of four
        channels -= channels % 4
    return bench.scene(_MOVES[function], bench.tensor(batch, channels, size, size))


MAKERS = (batch_norm, group_norm, pooling, upsample, channel_broadcast, concatenate, memory_format, rearrange)

"""Matrix products, convolutions, attention and recurrence: where most of the arithmetic is."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tonnage.benchmark.layers.scenes.bench import Bench, Scene


def linear(bench: Bench, rows: int, depth: int, columns: int, bias: bool, tf32: bool) -> Scene:
    _allow_tf32(tf32)
    return bench.layer(nn.Linear(depth, columns, bias=bias), bench.tensor(rows, depth))


def bmm(bench: Bench, batch: int, rows: int, depth: int, columns: int, transpose: str, tf32: bool) -> Scene:
    _allow_tf32(tf32)
    left = bench.tensor(batch, depth, rows) if transpose == "tn" else bench.tensor(batch, rows, depth)
    right = bench.tensor(batch, columns, depth) if transpose == "nt" else bench.tensor(batch, depth, columns)

    def product(a: Tensor, b: Tensor) -> Tensor:
        return torch.bmm(a.mT if transpose == "tn" else a, b.mT if transpose == "nt" else b)

    return bench.scene(product, left, right)


def _allow_tf32(allowed: bool) -> None:
    """Until the next layer: whoever runs layers resets it."""
    torch.backends.cuda.matmul.allow_tf32 = allowed


def conv2d(
    bench: Bench,
    batch: int,
    channels: int,
    filters: int,
    kernel: int,
    stride: int,
    size: int,
    groups: int,
    dilation: int,
    channels_last: bool,
    bias: bool,
) -> Scene:
    layer = nn.Conv2d(
        channels, filters, kernel, stride, padding=dilation * (kernel // 2), groups=groups, dilation=dilation, bias=bias
    )
    # An image needs no gradient.
    inputs = bench.tensor(batch, channels, size, size, channels_last=channels_last, grad=channels != 3)
    return bench.layer(layer, inputs, channels_last=channels_last)


def depthwise(
    bench: Bench, batch: int, channels: int, kernel: int, stride: int, size: int, channels_last: bool
) -> Scene:
    layer = nn.Conv2d(channels, channels, kernel, stride, padding=kernel // 2, groups=channels, bias=False)
    inputs = bench.tensor(batch, channels, size, size, channels_last=channels_last)
    return bench.layer(layer, inputs, channels_last=channels_last)


def conv_transpose2d(
    bench: Bench, batch: int, channels: int, filters: int, kernel: int, stride: int, size: int
) -> Scene:
    layer = nn.ConvTranspose2d(channels, filters, kernel, stride, padding=(kernel - 1) // 2)
    return bench.layer(layer, bench.tensor(batch, channels, size, size))


def conv1d(
    bench: Bench, batch: int, channels: int, filters: int, dims: int, kernel: int, dilation: int, size: int
) -> Scene:
    layer = nn.Conv1d(channels, filters, kernel, padding=dilation * (kernel // 2), dilation=dilation)
    return bench.layer(layer, bench.tensor(batch, channels, *[size] * dims))


def conv3d(
    bench: Bench, batch: int, channels: int, filters: int, dims: int, kernel: int, stride: int, size: int
) -> Scene:
    layer = nn.Conv3d(channels, filters, kernel, stride, padding=kernel // 2, bias=False)
    return bench.layer(layer, bench.tensor(batch, channels, *[size] * dims, grad=channels != 3))


def attention(
    bench: Bench, batch: int, heads: int, rows: int, head: int, causal: bool, mask: bool, dropout: float
) -> Scene:
    # As projections leave them: heads are split off the last dimension.
    packed = [bench.tensor(batch, rows, heads, head) for _ in range(3)]
    bias = bench.tensor(batch, 1, rows, rows, grad=False) if mask else None

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        q, k, v = (tensor.transpose(1, 2) for tensor in (query, key, value))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout, is_causal=causal and not mask)

    return bench.scene(attend, *packed)


def recurrent(
    bench: Bench, batch: int, rows: int, depth: int, columns: int, layers: int, cell: str, bidirectional: bool
) -> Scene:
    module = bench.module(getattr(nn, cell)(depth, columns, layers, bidirectional=bidirectional, batch_first=True))
    return bench.scene(lambda x: module(x)[0], bench.tensor(batch, rows, depth), leaves=tuple(module.parameters()))


MAKERS = (linear, bmm, conv2d, depthwise, conv_transpose2d, conv1d, conv3d, attention, recurrent)

"""Convolutions and poolings on torch, with Caffe's windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tonnage.program.caffe.layer import Layer, Shape
from tonnage.program.caffe.shapes.windows import Pool, Window, convolution_window, groups_of, pooling_of

_CONVOLVE: dict[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED: dict[int, Callable[..., Tensor]] = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
_LOWEST = torch.finfo(torch.float32).min


class Convolution(nn.Module):
    """A convolution with what follows it: a ReLU with the slope of its negative side, or nothing (None)."""

    def __init__(self, weight: Tensor, bias: Tensor | None, window: Window, groups: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.bias = nn.Parameter(bias, requires_grad=False) if bias is not None else None
        self.window, self.groups = window, groups
        self.slope: float | None = None
        self._run = _CONVOLVE[len(window.kernel)]

    def forward(self, *inputs: Tensor) -> Any:
        made = tuple(self._one(each) for each in inputs)
        return made if len(made) > 1 else made[0]

    def _one(self, image: Tensor) -> Tensor:
        return self._ended(self._linear(image, self.weight, self.bias))

    def _linear(self, image: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        window = self.window
        return self._run(image, weight, bias, window.stride, window.pad, window.dilation, self.groups)

    def _ended(self, made: Tensor) -> Tensor:
        if self.slope is None:
            return made
        return F.leaky_relu_(made, self.slope) if self.slope else torch.relu_(made)


class SummedConvolution(Convolution):
    """A convolution of several blobs as if they were joined."""

    def divide(self, channels: list[int]) -> None:
        """Give each blob its part of the weights, once they are final: what is compiled must find constants."""
        self._parts = [part.contiguous() for part in torch.split(self.weight.data, channels, 1)]

    def forward(self, *inputs: Tensor) -> Tensor:
        made = self._linear(inputs[0], self._parts[0], self.bias)
        for image, weight in zip(inputs[1:], self._parts[1:], strict=True):
            made = self._linear(image, weight, None) + made
        return self._ended(made)


class Deconvolution(nn.Module):
    """The transpose of a convolution."""

    def __init__(self, weight: Tensor, bias: Tensor | None, window: Window, groups: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.bias = nn.Parameter(bias, requires_grad=False) if bias is not None else None
        self.window, self.groups = window, groups
        self._run = _TRANSPOSED[len(window.kernel)]

    def forward(self, *inputs: Tensor) -> Any:
        window = self.window
        made = tuple(
            self._run(each, self.weight, self.bias, window.stride, window.pad, 0, self.groups, window.dilation)
            for each in inputs
        )
        return made if len(made) > 1 else made[0]


class Pooling(nn.Module):
    """The largest or the mean of each window; of maxima also where they were, if a second top asks for it."""

    def __init__(self, layer: Layer, shape: Shape) -> None:
        super().__init__()
        self.layer, self._shape, self._pool = layer, shape[1:], pooling_of(layer, shape)
        self._mean = layer.param("pooling_param").get("pool") == "AVE"
        self._mask = len(layer.tops) == 2

    def forward(self, image: Tensor) -> Any:
        shape = tuple(image.shape)
        pool = self._pool if shape[1:] == self._shape else pooling_of(self.layer, shape)
        if pool.kernel == shape[2:] and pool.size == (1, 1) and not self._mask and pool.pad == (0, 0):
            return image.mean((2, 3), keepdim=True) if self._mean else image.amax((2, 3), keepdim=True)
        return self._means(image, pool) if self._mean else self._largest(image, pool)

    def _means(self, image: Tensor, pool: Pool) -> Tensor:
        """torch clips windows as Caffe does, but takes at most half a kernel as padding."""
        pad = pool.pad
        if any(2 * p > k for p, k in zip(pad, pool.kernel, strict=True)):
            image, pad = F.pad(image, (pad[1], pad[1], pad[0], pad[0])), (0, 0)
        made = _cut(F.avg_pool2d(image, pool.kernel, pool.stride, pad, ceil_mode=True), pool)
        missing = [wanted - there for wanted, there in zip(pool.size, made.shape[2:], strict=True)]
        return F.pad(made, (0, missing[1], 0, missing[0])) if any(missing) else made  # windows behind the image

    def _largest(self, image: Tensor, pool: Pool) -> Any:
        pad, width = pool.pad, image.shape[3]
        ends = [(count - 1) * s + k - n - p for count, s, k, n, p in zip(
            pool.size, pool.stride, pool.kernel, image.shape[2:], pad, strict=True)]  # fmt: skip
        own = all(2 * p <= k for p, k in zip(pad, pool.kernel, strict=True)) and all(
            (count - 1) * s < n + p for count, s, n, p in zip(pool.size, pool.stride, image.shape[2:], pad, strict=True)
        )
        if own and not self._mask:
            return _cut(F.max_pool2d(image, pool.kernel, pool.stride, pad, ceil_mode=True), pool)
        padded = F.pad(image, (pad[1], max(0, ends[1]), pad[0], max(0, ends[0])), value=_LOWEST)
        if not self._mask:
            return _cut(F.max_pool2d(padded, pool.kernel, pool.stride), pool)
        made, found = F.max_pool2d(padded, pool.kernel, pool.stride, return_indices=True)
        across, width = int(padded.shape[3]), int(width)  # numbers, not what a trace would compute anew
        rows = found.div(across, rounding_mode="floor") - pad[0]
        places = rows * width + found % across - pad[1]
        return _cut(made, pool), _cut(places, pool).to(image.dtype)


def _cut(made: Tensor, pool: Pool) -> Tensor:
    """Without windows that Caffe does not have."""
    if tuple(made.shape[2:]) == pool.size:
        return made
    return made[:, :, : pool.size[0], : pool.size[1]]


def convolution(layer: Layer, weights: Sequence[Tensor], shapes: list[Shape]) -> nn.Module:
    window = convolution_window(layer, len(shapes[0]) - 2)
    bias = weights[1] if len(weights) > 1 else None
    kinds = {"Deconvolution": Deconvolution, "SummedConvolution": SummedConvolution}
    return kinds.get(layer.type, Convolution)(weights[0], bias, window, groups_of(layer, shapes[0][1]))


def pooling(layer: Layer, weights: Sequence[Tensor], shapes: list[Shape]) -> nn.Module:
    return Pooling(layer, shapes[0])

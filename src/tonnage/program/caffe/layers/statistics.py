"""Normalisations, inner products and reductions on torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tonnage.program.caffe.layer import Layer, Shape, axis_of
from tonnage.program.caffe.layers.pointwise import Function
from tonnage.program.caffe.normalisation import batch_norm_factors, uses_stored
from tonnage.program.caffe.shapes.values import covered

_MOST_BAND = 2048  # channels over which a sum of neighbours is worth a product
_jit: Any = torch.jit
_is_tracing = _jit.is_tracing


class Affine(nn.Module):
    """A factor and a summand for the axes from `axis` on; either may be missing."""

    def __init__(self, factor: Tensor | None, summand: Tensor | None, axis: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(factor, requires_grad=False) if factor is not None else None
        self.summand = nn.Parameter(summand, requires_grad=False) if summand is not None else None
        self.axis = axis

    def forward(self, blob: Tensor, given: Tensor | None = None) -> Tensor:
        factor = self.factor if given is None else given
        if factor is None:
            return blob if self.summand is None else blob + spread(self.summand, blob, self.axis)
        if self.summand is None:
            return blob * spread(factor, blob, self.axis)
        return torch.addcmul(spread(self.summand, blob, self.axis), blob, spread(factor, blob, self.axis))


def spread(values: Tensor, blob: Tensor, axis: int) -> Tensor:
    """Values for axes from `axis` on, so that they broadcast over a blob."""
    behind = blob.dim() - axis - values.dim()
    return values.reshape(*values.shape, *(1,) * behind) if behind > 0 else values


class InnerProduct(nn.Module):
    """A matrix product over the axes from `axis` on."""

    def __init__(self, weight: Tensor, bias: Tensor | None, axis: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.bias = nn.Parameter(bias, requires_grad=False) if bias is not None else None
        self.axis = axis

    def forward(self, blob: Tensor) -> Tensor:
        kept = blob.shape[: self.axis]
        made = F.linear(blob.reshape(-1, self.weight.shape[1]), self.weight, self.bias)
        return made.reshape(*kept, self.weight.shape[0])


class Embed(nn.Module):
    """A row of weights for each number."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.bias = nn.Parameter(bias, requires_grad=False) if bias is not None else None

    def forward(self, numbers: Tensor) -> Tensor:
        rows = F.embedding(numbers.long(), self.weight)
        return rows if self.bias is None else rows + self.bias


class Normalize(nn.Module):
    """Each place, or each image, divided by its length, times a factor."""

    def __init__(self, factor: Tensor, across_spatial: bool, epsilon: float) -> None:
        super().__init__()
        self.factor = nn.Parameter(factor, requires_grad=False)
        self._axes = (1, 2, 3) if across_spatial else (1,)
        self._epsilon = epsilon

    def forward(self, blob: Tensor) -> Tensor:
        axes = tuple(axis for axis in self._axes if axis < blob.dim())
        length = torch.sqrt(blob.square().sum(axes, keepdim=True) + self._epsilon)
        return blob / length * spread(self.factor, blob, 1)


def affine(layer: Layer, weights: Sequence[Tensor], shapes: list[Shape]) -> nn.Module:
    return Affine(weights[0], weights[1], 1)


def batch_norm(layer: Layer, weights: Sequence[Tensor], shapes: list[Shape]) -> nn.Module:
    if uses_stored(layer):
        return Affine(*batch_norm_factors(layer, weights), 1 if len(shapes[0]) > 1 else 0)
    epsilon = layer.param("batch_norm_param").get("eps")

    def run(blob: Tensor) -> Tensor:
        axes = [axis for axis in range(blob.dim()) if axis != 1]
        centred = blob - blob.mean(axes, keepdim=True)
        return centred * torch.rsqrt(centred.square().mean(axes, keepdim=True) + epsilon)

    return Function(run)


def scale(layer: Layer, weights: Sequence[Tensor], shapes: list[Shape]) -> nn.Module:
    """Scale and Bias, with weights of their own or a second bottom."""
    param_name = "scale_param" if layer.type == "Scale" else "bias_param"
    if len(shapes) == 1:
        axis = covered(layer, param_name, shapes[0])[0]
    else:
        axis = axis_of(layer, layer.param(param_name).get("axis"), shapes[0]) if shapes[1] and shapes[0] else 0
    if layer.type == "Bias":
        return Affine(None, weights[0], axis) if len(shapes) == 1 else Function(lambda x, y: x + spread(y, x, axis))
    own = len(shapes) == 1
    summand = weights[-1] if len(weights) == 1 + int(own) else None
    return Affine(weights[0] if own else None, summand, axis)


def inner_product(layer: Layer, weights: Sequence[Tensor], shapes: list[Shape]) -> nn.Module:
    param = layer.param("inner_product_param")
    weight = weights[0].t().contiguous() if param.get("transpose") else weights[0]
    return InnerProduct(weight, weights[1] if len(weights) > 1 else None, axis_of(layer, param.get("axis"), shapes[0]))


def embed(layer: Layer, weights: Sequence[Tensor], shapes: list[Shape]) -> nn.Module:
    return Embed(weights[0], weights[1] if len(weights) > 1 else None)


def normalize(layer: Layer, weights: Sequence[Tensor], shapes: list[Shape]) -> nn.Module:
    param = layer.param("norm_param")
    return Normalize(weights[0], param.get("across_spatial"), param.get("eps"))


def lrn(layer: Layer, weights: Sequence[Tensor], shapes: list[Shape]) -> nn.Module:
    """Within a channel Caffe adds 1 and not `k`."""
    param = layer.param("lrn_param")
    size, alpha, beta, k = (param.get(name) for name in ("local_size", "alpha", "beta", "k"))
    if param.get("norm_region") == "WITHIN_CHANNEL":
        return Function(lambda x: x * (1 + alpha * F.avg_pool2d(x * x, size, 1, size // 2)) ** -beta)

    distance = torch.arange(min(shapes[0][1], _MOST_BAND))
    band = ((distance[:, None] - distance).abs() <= size // 2).float()[:, :, None, None]

    def across(blob: Tensor) -> Tensor:
        if blob.shape[1] == len(band) and _has_slow_slices(blob):
            total = F.conv2d(blob * blob, band)
        else:
            total = _sums(blob * blob, size)
        return blob * _power(total * (alpha / size) + k, beta)

    return Function(across)


def _has_slow_slices(blob: Tensor) -> bool:
    """In oneDNN's graphs, and where channels are together, a product that sums is faster than sums of slices."""
    return _is_tracing() or (blob.device.type == "cpu" and blob.stride(1) == 1 and blob.shape[2] > 1)


def _sums(blob: Tensor, size: int) -> Tensor:
    """Of neighbouring channels."""
    channels = blob.shape[1]
    padded = F.pad(blob, (0, 0, 0, 0, size // 2, size // 2))
    total = padded[:, :channels]
    for first in range(1, size):
        total = total + padded[:, first : first + channels]
    return total


def _power(base: Tensor, beta: float) -> Tensor:
    """To the power of -beta; that of AlexNet needs no logarithm."""
    if beta != 0.75:
        return torch.pow(base, -beta)
    root = torch.rsqrt(base)
    return root * torch.sqrt(root)


def mvn(layer: Layer, weights: Sequence[Tensor], shapes: list[Shape]) -> nn.Module:
    param = layer.param("mvn_param")
    axes = (1, 2, 3) if param.get("across_channels") else (2, 3)
    scaled, epsilon = param.get("normalize_variance"), param.get("eps")

    def run(blob: Tensor) -> Tensor:
        centred = blob - blob.mean(axes, keepdim=True)
        return centred / (centred.square().mean(axes, keepdim=True).sqrt() + epsilon) if scaled else centred

    return Function(run)


def argmax(layer: Layer, weights: Sequence[Tensor], shapes: list[Shape]) -> nn.Module:
    """Where and how large the largest are; of equal ones Caffe takes the last first."""
    param = layer.param("argmax_param")
    count, values = param.get("top_k"), param.get("out_max_val")
    axis = axis_of(layer, param.get("axis"), shapes[0]) if "axis" in param else None

    def run(blob: Tensor) -> Tensor:
        rows = blob if axis is not None else blob.reshape(blob.shape[0], -1)
        dim = 1 if axis is None else axis
        if count == 1:
            largest, places = rows.flip(dim).max(dim, keepdim=True)
        else:
            ordered, order = torch.sort(rows.flip(dim), dim=dim, descending=True, stable=True)
            largest, places = ordered.narrow(dim, 0, count), order.narrow(dim, 0, count)
        places = (rows.shape[dim] - 1 - places).to(blob.dtype)
        if axis is not None:
            return largest if values else places
        made = torch.stack([places, largest], 1) if values else places.unsqueeze(1)
        return made.reshape(*made.shape, *(1,) * (blob.dim() - 3))

    return Function(run)


def reduction(layer: Layer, weights: Sequence[Tensor], shapes: list[Shape]) -> nn.Module:
    param = layer.param("reduction_param")
    operation, coefficient = param.get("operation"), param.get("coeff")
    axis = axis_of(layer, param.get("axis"), shapes[0]) if shapes[0] else 0

    def run(blob: Tensor) -> Tensor:
        rows = blob.reshape(*blob.shape[:axis], -1)
        rows = rows.abs() if operation == "ASUM" else rows.square() if operation == "SUMSQ" else rows
        made = rows.mean(-1) if operation == "MEAN" else rows.sum(-1)
        return made * coefficient if coefficient != 1 else made

    return Function(run)

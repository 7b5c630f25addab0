"""Layers that treat each number by itself, and sums and products of blobs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tonnage.program.caffe.layer import Layer, Shape


class Function(nn.Module):
    """A layer without weights."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self._function(*inputs)


class PReLU(nn.Module):
    """A slope of the negative side for each channel, or one for all."""

    def __init__(self, slope: Tensor) -> None:
        super().__init__()
        self.slope = nn.Parameter(slope.reshape(-1), requires_grad=False)

    def forward(self, blob: Tensor) -> Tensor:
        return F.prelu(blob, self.slope)


def activation(layer: Layer, weights: Sequence[Tensor], shapes: list[Shape]) -> nn.Module:
    return Function(_ACTIVATIONS[layer.type](layer))


def prelu(layer: Layer, weights: Sequence[Tensor], shapes: list[Shape]) -> nn.Module:
    return PReLU(weights[0])


def _relu(layer: Layer) -> Callable[[Tensor], Tensor]:
    slope = layer.param("relu_param").get("negative_slope")
    return torch.relu if slope == 0 else lambda x: F.leaky_relu(x, slope)


def _elu(layer: Layer) -> Callable[[Tensor], Tensor]:
    alpha = layer.param("elu_param").get("alpha")
    return lambda x: torch.where(x > 0, x, alpha * torch.expm1(x.clamp(max=0)))


def _power(layer: Layer) -> Callable[[Tensor], Tensor]:
    param = layer.param("power_param")
    power, scale, shift = param.get("power"), param.get("scale"), param.get("shift")
    if power * scale == 0:
        value = 1.0 if power == 0 else shift**power if shift > 0 or power == int(power) else math.nan
        return lambda x: torch.full_like(x, value)

    def run(x: Tensor) -> Tensor:
        x = x * scale if scale != 1 else x
        x = x + shift if shift != 0 else x
        return x**power if power != 1 else x

    return run


def _exponential(layer: Layer) -> Callable[[Tensor], Tensor]:
    param = layer.param("exp_param")
    base, scale, shift = param.get("base"), param.get("scale"), param.get("shift")
    log_base = 1.0 if base == -1 else math.log(base)
    return lambda x: torch.exp(x * (log_base * scale) + log_base * shift)


def _logarithm(layer: Layer) -> Callable[[Tensor], Tensor]:
    param = layer.param("log_param")
    base, scale, shift = param.get("base"), param.get("scale"), param.get("shift")
    log_base = 1.0 if base in (-1, 1) else math.log(base)
    return lambda x: torch.log(x * scale + shift) / log_base


def _threshold(layer: Layer) -> Callable[[Tensor], Tensor]:
    threshold = layer.param("threshold_param").get("threshold")
    return lambda x: (x > threshold).to(x.dtype)


def _clip(layer: Layer) -> Callable[[Tensor], Tensor]:
    least, most = layer.param("clip_param").get("min"), layer.param("clip_param").get("max")
    return lambda x: x.clamp(least, most)


def _swish(layer: Layer) -> Callable[[Tensor], Tensor]:
    beta = layer.param("swish_param").get("beta")
    return lambda x: x * torch.sigmoid(x if beta == 1 else beta * x)


def _softmax(layer: Layer) -> Callable[[Tensor], Tensor]:
    axis = layer.param("softmax_param").get("axis")
    function = torch.softmax if layer.type == "Softmax" else torch.log_softmax
    return lambda x: function(x, axis)


_ACTIVATIONS: dict[str, Callable[[Layer], Callable[[Tensor], Tensor]]] = {
    "ReLU": _relu, "ELU": _elu, "Power": _power, "Exp": _exponential, "Log": _logarithm, "Threshold": _threshold,
    "Clip": _clip, "Swish": _swish, "Softmax": _softmax, "LogSoftmax": _softmax,
    "ReLU6": lambda layer: F.relu6,
    "Sigmoid": lambda layer: torch.sigmoid,
    "TanH": lambda layer: torch.tanh,
    "AbsVal": lambda layer: torch.abs,
    "BNLL": lambda layer: lambda x: torch.log1p(torch.exp(-x.abs())) + x.clamp(min=0),
    "Dropout": lambda layer: lambda x: x,
}  # fmt: skip


def eltwise(layer: Layer, weights: Sequence[Tensor], shapes: list[Shape]) -> nn.Module:
    param = layer.param("eltwise_param")
    coefficients = param.all("coeff") or [1.0] * len(shapes)
    operation = param.get("operation")

    def run(*blobs: Tensor) -> Tensor:
        made = blobs[0] if coefficients[0] == 1 or operation != "SUM" else blobs[0] * coefficients[0]
        for blob, coefficient in zip(blobs[1:], coefficients[1:], strict=True):
            if operation == "SUM":
                made = torch.add(made, blob, alpha=coefficient)
            else:
                made = made * blob if operation == "PROD" else torch.maximum(made, blob)
        return made

    return Function(run)


def axpy(layer: Layer, weights: Sequence[Tensor], shapes: list[Shape]) -> nn.Module:
    def run(factors: Tensor, first: Tensor, second: Tensor) -> Tensor:
        spread = factors.reshape(*factors.shape[:2], *(1,) * (first.dim() - 2))
        return torch.addcmul(second, spread, first)

    return Function(run)

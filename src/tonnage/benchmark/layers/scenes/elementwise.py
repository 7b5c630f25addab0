"""One element in, one element out."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tonnage.benchmark.layers.scenes.bench import Bench, Function, Scene, forward_only

UNARY: dict[str, Function] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "leaky_relu": F.leaky_relu,
    "exp": torch.exp,
    "square": lambda x: x**2,
    "hardswish": F.hardswish,
    "scale": lambda x: x * 0.5,
    "shift": lambda x: x + 1.0,
    "negate": torch.neg,
    "elu": F.elu,
    "sqrt": lambda x: x.abs().sqrt(),
    "dropout": lambda x: F.dropout(x, 0.1),
    "clamp": lambda x: x.clamp(-1, 1),
    "mish": F.mish,
    "softplus": F.softplus,
    "power": lambda x: torch.pow(x.abs(), 1.5),
    "cos": torch.cos,
    "relu_": lambda x: F.relu(x + 0.0, inplace=True),
}
BINARY: dict[str, Function] = {
    "add": torch.add,
    "multiply": torch.mul,
    "subtract": torch.sub,
    "divide": torch.div,
    "maximum": torch.maximum,
    "greater": torch.gt,
    "where": lambda a, b: torch.where(a > 0, a, b),
    "lerp": lambda a, b: torch.lerp(a, b, 0.1),
    "addcmul": lambda a, b: torch.addcmul(a, b, b),
    "swiglu": lambda a, b: F.silu(a) * b,
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "smooth_l1": F.smooth_l1_loss,
    "bce": F.binary_cross_entropy_with_logits,
}
FILLS: dict[str, Function] = {
    "zeros": lambda b, n: torch.zeros(n, device=b.device, dtype=b.dtype),
    "randn": lambda b, n: torch.randn(n, device=b.device, dtype=b.dtype),
    "rand": lambda b, n: torch.rand(n, device=b.device, dtype=b.dtype),
    "full": lambda b, n: torch.full((n,), 0.5, device=b.device, dtype=b.dtype),
    "arange": lambda b, n: torch.arange(n, device=b.device),
    "randint": lambda b, n: torch.randint(0, 9, (n,), device=b.device),
    "tril": lambda b, n: torch.tril(torch.ones(int(n**0.5), int(n**0.5), device=b.device)),
}


def unary(bench: Bench, rows: int, function: str) -> Scene:
    return bench.scene(UNARY[function], bench.tensor(rows))


def binary(bench: Bench, rows: int, function: str) -> Scene:
    return bench.scene(BINARY[function], bench.tensor(rows), bench.tensor(rows, grad=function != "bce"))


def broadcast(bench: Bench, rows: int, columns: int, side: str, function: str) -> Scene:
    shape = {"row": (1, columns), "column": (rows, 1), "scalar": (1, 1)}[side]
    return bench.scene(BINARY[function], bench.tensor(rows, columns), bench.tensor(*shape))


def cast(bench: Bench, rows: int, target: str) -> Scene:
    return bench.scene(lambda x: x.to(getattr(torch, target)), bench.tensor(rows))


def fill(bench: Bench, rows: int, function: str) -> Scene:
    return forward_only(lambda: FILLS[function](bench, rows))


MAKERS = (unary, binary, broadcast, cast, fill)

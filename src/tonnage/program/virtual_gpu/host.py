"""Host operators during a capture: they really run, except the costly filling of large tensors with random numbers.

Model parameters are usually initialised on the host. Nobody looks at the numbers, but drawing seven billion of them takes
minutes and touches 28 GB; untouched pages of a fresh tensor cost nothing. Tensors that are made of random numbers are data
or masks, which programs do look at: they repeat a small draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch

LARGE = 1 << 16
_MOST_DRAWN = 1 << 26
_RANDOM_FILLS = {
    "aten::normal_", "aten::uniform_", "aten::random_", "aten::bernoulli_", "aten::exponential_", "aten::cauchy_",
    "aten::log_normal_", "aten::geometric_",
}  # fmt: skip


def run(func: torch._ops.OpOverload, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if name in _RANDOM_FILLS and args[0].numel() >= LARGE and args[0].is_floating_point():
        return args[0]
    if name in ("aten::randn", "aten::rand") and (count := prod(args[0])) >= LARGE:
        if count > _MOST_DRAWN:
            return torch.zeros(args[0], **{k: v for k, v in kwargs.items() if k != "generator"})
        drawn = func([LARGE], **kwargs)
        return drawn.repeat(-(-count // LARGE))[:count].view(args[0])
    return func(*args, **kwargs)


_RANDOM = _RANDOM_FILLS | {
    "aten::randn", "aten::rand", "aten::randint", "aten::randperm", "aten::multinomial", "aten::normal",
    "aten::bernoulli", "aten::rand_like", "aten::randn_like", "aten::randint_like",
}  # fmt: skip


def cost(name: str, result: Any) -> tuple[int, int]:
    """Bytes that a host operator wrote, and how many of the numbers were drawn by chance, which takes far longer."""
    if not isinstance(result, torch.Tensor) or result.layout is not torch.strided:
        return 0, 0
    return result.numel() * result.element_size(), result.numel() if name in _RANDOM else 0

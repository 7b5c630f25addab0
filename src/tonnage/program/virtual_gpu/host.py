"""Host operators during a capture: they really run, except the costly filling of large tensors with random numbers.

Model parameters are usually initialised on the host. Nobody looks at the numbers, but drawing seven billion of them takes
minutes and touches 28 GB; untouched pages of a fresh tensor cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

LARGE = 1 << 16
_RANDOM_FILLS = {
    "aten::normal_", "aten::uniform_", "aten::random_", "aten::bernoulli_", "aten::exponential_", "aten::cauchy_",
    "aten::log_normal_", "aten::geometric_",
}  # fmt: skip
_RANDOM_FACTORIES = {"aten::randn", "aten::rand", "aten::normal", "aten::rand_like", "aten::randn_like"}


def run(func: torch._ops.OpOverload, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if name in _RANDOM_FILLS and args[0].numel() >= LARGE and args[0].is_floating_point():
        return args[0]
    if name in ("aten::randn", "aten::rand") and _numel(args[0]) >= LARGE:
        kwargs = {k: v for k, v in kwargs.items() if k != "generator"}
        return torch.zeros(args[0], **kwargs)
    return func(*args, **kwargs)


def _numel(shape: Sequence[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count

"""How PyTorch walks through the operands of an elementwise operator.

Dimensions that are neighbours in memory for every operand are merged. If one is left, the kernel loads several values at
once; otherwise it computes the place of each value in each operand, which takes longer than moving it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import mul

from tonnage.program.trace import TensorSpec


def merged_dims(operands: Sequence[TensorSpec]) -> int:
    """How many dimensions are left; 1 for operands that do not fit each other. The result is one of the operands."""
    shape = max((spec.shape for spec in operands), key=lambda shape: (len(shape), shape), default=())
    if len(shape) < 2:
        return 1
    walks = [_walk(spec, shape) for spec in operands]
    if not all(walks):
        return 1
    result = next((walk for spec, walk in zip(operands, walks, strict=True) if spec.shape == shape), walks[0])
    order = sorted((dim for dim, size in enumerate(shape) if size > 1), key=lambda dim: -result[dim])
    breaks = sum(any(walk[outer] != walk[inner] * shape[inner] for walk in walks) for outer, inner in pairwise(order))
    return 1 + breaks


def _walk(spec: TensorSpec, shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of an operand in the shape of all, 0 where it is repeated; nothing if it does not fit."""
    missing = len(shape) - len(spec.shape)
    if any(size not in (1, all_size) for size, all_size in zip(spec.shape, shape[missing:], strict=True)):
        return ()
    own = (0 if size == 1 else stride for size, stride in zip(spec.shape, strides(spec), strict=True))
    return (*([0] * missing), *own)


def strides(spec: TensorSpec) -> tuple[int, ...]:
    """In elements, for every layout."""
    if spec.layout == "strided":
        return spec.strides
    count = len(spec.shape)
    order = (0, *range(2, count), 1) if spec.layout == "channels_last" and count > 2 else tuple(range(count))
    inner_first = [spec.shape[dim] for dim in reversed(order)]
    places = [*accumulate(inner_first, mul, initial=1)][count - 1 :: -1] if count else []
    return tuple(place for _, place in sorted(zip(order, places, strict=True)))

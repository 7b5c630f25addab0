"""Scratch memory of torch's reduction kernels.

When one block per output would leave most of the GPU idle, torch splits the reduction of an output over several blocks
and combines their partial results through global memory. How much it takes follows from the launch configuration
(`aten/src/ATen/native/cuda/Reduce.cuh`), which depends on the shape and on the number of SMs.
"""

from __future__ import annotations

from collections.abc import Collection
from math import prod

from tonnage.program.trace import TensorSpec

_MAX_THREADS = 512
_WARP = 32
_MIN_VALUES = 16
_MAX_VALUES = 256
_VECTOR = 4


def reduction_scratch(spec: TensorSpec, dims: Collection[int], sms: int, partial_bytes: int = 4) -> tuple[int, ...]:
    """Bytes of partial results and of semaphores for a reduction of a dense tensor over `dims`."""
    rank = len(spec.shape)
    reduced = {d % rank for d in dims} if dims and rank else set(range(rank))
    axes = [0, *range(2, rank), 1] if spec.layout == "channels_last" else list(range(rank))  # slowest first
    shape = _coalesce([(spec.shape[axis], axis in reduced) for axis in axes if spec.shape[axis] != 1])
    if not shape or spec.numel == 0:
        return ()
    outputs = prod(size for size, is_reduced in shape if not is_reduced)
    inputs = prod(size for size, is_reduced in shape if is_reduced)
    fastest, fastest_is_reduced = shape[-1]
    if fastest_is_reduced:
        vector = 1
        width_limit, height_limit = fastest, outputs
        if len(shape) == 1 and fastest > 128:
            width_limit //= _VECTOR
    else:
        vector = _divisor(fastest)
        width_limit, height_limit = fastest // vector, inputs
    width, height = _block(width_limit, height_limit, _MAX_THREADS // vector)
    return _scratch(outputs, inputs, vector, width, height, fastest_is_reduced, sms, partial_bytes)


def _scratch(
    outputs: int, inputs: int, vector: int, width: int, height: int, along_x: bool, sms: int, partial_bytes: int
) -> tuple[int, ...]:
    values, step_output = inputs, 1
    if along_x:
        values = _up(values, width)
    else:
        step_output *= width
    if not (values >= height * _MIN_VALUES or values >= _MAX_VALUES):
        return ()  # the rows of a block work on different outputs; torch then never splits further
    values = _up(values, height)
    grid = _up(outputs // vector, step_output)
    target = sms * (2048 // (width * height))
    if values < _MAX_VALUES or grid > target:
        return ()
    blocks = max(min(_up(target, grid), _up(values, _MIN_VALUES)), _up(values, _MAX_VALUES))
    if blocks <= 1:
        return ()
    partials = partial_bytes * outputs * blocks
    if not along_x:
        partials *= width * vector
    return partials, 4 * grid


def _block(width_limit: int, height_limit: int, threads: int) -> tuple[int, int]:
    width_power = _last_power(width_limit) if width_limit < threads else threads
    height_power = _last_power(height_limit) if height_limit < threads else threads
    width = min(width_power, _WARP)
    height = min(height_power, threads // width)
    return min(width_power, threads // height), height


def _coalesce(axes: list[tuple[int, bool]]) -> list[tuple[int, bool]]:
    """Neighbouring axes that are both reduced or both kept act as one."""
    merged: list[tuple[int, bool]] = []
    for size, is_reduced in axes:
        if merged and merged[-1][1] == is_reduced:
            merged[-1] = (merged[-1][0] * size, is_reduced)
        else:
            merged.append((size, is_reduced))
    return merged


def _divisor(size: int) -> int:
    vector = _VECTOR
    while size % vector:
        vector //= 2
    return vector


def _last_power(value: int) -> int:
    return 1 << max(value.bit_length() - 1, 0)


def _up(value: int, by: int) -> int:
    return -(-value // by)

"""Turns a call of a torch operator, on the virtual GPU or on a real one, into the Trace's plain `Operator`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from tonnage.program.trace import Attribute, Operator, TensorSpec
from tonnage.program.virtual_gpu.arguments import tensors_in

_LAYOUTS = ("contiguous", "channels_last", "strided")


def describe_call(
    name: str,
    argument_names: Sequence[str],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    outputs: Iterable[torch.Tensor],
) -> Operator:
    """The operator with the shapes, dtypes and layouts of its tensors and its other arguments as plain values."""
    attributes = {
        argument: plain
        for argument, value in (*zip(argument_names, args, strict=False), *kwargs.items())
        if (plain := plain_value(value)) is not None
    }
    return Operator(name, tuple(_slots(args)), tuple(describe_tensor(t) for t in outputs), attributes)


def describe_tensor(tensor: torch.Tensor) -> TensorSpec:
    layout = _LAYOUTS[_layout(tensor)]
    strides = tuple(map(int, tensor.stride())) if layout == "strided" else ()
    # Not yet integers while `torch.jit.trace` is watching.
    return TensorSpec(tuple(map(int, tensor.shape)), str(tensor.dtype).removeprefix("torch."), layout, strides)


def plain_value(value: Any) -> Attribute:
    """An argument as plain data, None for tensors and whatever has no meaning outside torch."""
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, list | tuple) and value and all(isinstance(v, bool | int | float) for v in value):
        return tuple(value)
    return None


def call_key(
    func: torch._ops.OpOverload,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    inputs: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
) -> tuple[Any, ...]:
    """Equal for calls with equal descriptions, and quicker to make than the description."""
    return (
        func,
        tuple([_tensor_key(t) for t in inputs]),
        tuple([_tensor_key(t) for t in outputs]),
        tuple([plain_value(a) for a in args]),
        tuple([(k, plain_value(v)) for k, v in kwargs.items()]) if kwargs else (),
    )


def _tensor_key(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.dtype, tensor.is_contiguous() or tensor.stride()


def _slots(args: Sequence[Any]) -> Iterator[TensorSpec | None]:
    """One entry per tensor argument, None for a missing optional one, so that positions can be read from a Trace."""
    for value in args:
        if isinstance(value, torch.Tensor):
            yield from (describe_tensor(part) for part in tensors_in((value,), {}))
        elif value is None:
            yield None
        elif isinstance(value, list | tuple):
            yield from (
                describe_tensor(v) if isinstance(v, torch.Tensor) else None
                for v in value
                if v is None or isinstance(v, torch.Tensor)
            )


def _layout(tensor: torch.Tensor) -> int:
    if tensor.is_contiguous():
        return 0
    if tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
        return 1
    if tensor.dim() == 5 and tensor.is_contiguous(memory_format=torch.channels_last_3d):
        return 1
    return 2

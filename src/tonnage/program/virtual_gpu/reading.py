"""What Python code learns of tensors on the virtual GPU: numbers, truths, text, comparisons, elements by index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tonnage.program.virtual_gpu.callers import asker, caller, is_user_file
from tonnage.program.virtual_gpu.device import DeviceMode, handles
from tonnage.program.virtual_gpu.errors import DataDependent
from tonnage.program.virtual_gpu.guards import chooses_number, passing, repeats
from tonnage.program.virtual_gpu.values import FULL_MASK, Basis

_ASSUMED = "a condition inside the model depends on values computed on the GPU; it was assumed to be false"


@handles(torch.Tensor.item)
def _item(mode: DeviceMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return mode.scalar(args[0]) if mode.is_virtual(args[0]) else func(*args, **kwargs)


@handles(torch.Tensor.__float__, torch.Tensor.__int__)
def _number(mode: DeviceMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if not mode.is_virtual(args[0]):
        return func(*args, **kwargs)
    value = mode.scalar(args[0])
    return float(value) if func is torch.Tensor.__float__ else int(value)


@handles(torch.Tensor.__index__)
def _as_index(mode: DeviceMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if not mode.is_virtual(args[0]):
        return func(*args, **kwargs)
    return mode.scalar(args[0]).__index__()


@handles(torch.Tensor.__bool__, torch.is_nonzero, torch.Tensor.is_nonzero)
def _bool(mode: DeviceMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return _truth(mode, args[0]) if mode.is_virtual(args[0]) else func(*args, **kwargs)


def _truth(mode: DeviceMode, tensor: torch.Tensor) -> bool:
    """The outcome of a condition: known, that of a check that passes, that of a full mask, or refused."""
    twins = mode.operators.twins
    basis, is_known = twins.basis(tensor), mode.knows(tensor)
    inside = mode.operators.modules.depth > 0
    if is_known and basis is Basis.FACT:
        return bool(mode.scalar(tensor))
    asking = caller()
    for frame in (asker(), asking):  # torch makes checks of its own
        if (outcome := passing(frame)) is not None:
            mode.operators.note_read(tensor)
            return outcome
    if (basis is Basis.BOUND or (inside and not is_known)) and repeats(asking):
        raise DataDependent("a loop goes on for as long as values on the GPU say")
    value = bool(mode.scalar(tensor))
    if is_known or not inside or chooses_number(asking):
        return value
    if tensor.dtype is not torch.bool:  # `count or 1`: a computed number is hardly ever zero
        mode.operators.recorder.warn(FULL_MASK)
        return True
    # Installed models ask such questions to catch overflows; in the user's own model it is a real decision.
    if is_user_file(asking.f_code.co_filename):
        raise DataDependent("a branch inside the model depends on values computed on the GPU")
    mode.operators.recorder.warn(_ASSUMED)
    return False


@handles(torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.__dlpack__)
def _host_data(mode: DeviceMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    tensor, *rest = args
    if not mode.is_virtual(tensor):
        return func(*args, **kwargs)
    if func is not torch.Tensor.tolist and func is not torch.Tensor.__dlpack__:
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. "
            "Use Tensor.cpu() to copy the tensor to host memory first."
        )
    with mode.operators.recorder.aside():
        detached = tensor.detach()
    return func(mode.to_host(detached), *rest, **kwargs)


@handles(torch.Tensor.__repr__, torch.Tensor.__str__, torch.Tensor.__format__)
def _text(mode: DeviceMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    tensor = args[0]
    if not mode.is_virtual(tensor):
        return str(func(*args, **kwargs))
    if func is torch.Tensor.__format__ and tensor.dim() == 0:
        return format(mode.scalar(tensor), args[1])
    mode.operators.note_read(tensor)
    return f"tensor(..., device='cuda:0', size={tuple(tensor.shape)}, dtype={tensor.dtype})"


@handles(torch.allclose, torch.Tensor.allclose, torch.equal, torch.Tensor.equal)
def _compare(mode: DeviceMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    if not mode.is_virtual(args[0]) and not mode.is_virtual(args[1]):
        return bool(func(*args, **kwargs))
    mode.operators.note_read(args[0])
    with mode.operators.recorder.aside():
        left, right = (mode.operators.twins.value(t) if mode.is_virtual(t) else t for t in args[:2])
        if left is None or right is None:
            return passing(caller()) or False
        return bool(func(left, right, *args[2:], **kwargs))


_TENSOR: Any = torch._C.TensorBase


@handles(torch.Tensor.__getitem__, torch.Tensor.__setitem__, _TENSOR.__getitem__, _TENSOR.__setitem__)
def _subscript(mode: DeviceMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """torch makes tensors of lists where the indexed tensor is, past all modes: on meta their numbers would be lost."""
    tensor, index, *rest = args
    parts = index if isinstance(index, tuple) else (index,)
    if any(isinstance(part, list | np.ndarray) for part in parts) and mode.is_virtual(tensor):
        parts = tuple(map(_subscript_part, parts))
        index = parts if isinstance(index, tuple) else parts[0]
    return func(tensor, index, *rest, **kwargs)


def _subscript_part(part: Any) -> Any:
    if isinstance(part, np.ndarray) or (isinstance(part, list) and _has_only_numbers(part)):
        found = torch.as_tensor(part)
        return found if found.numel() else found.long()
    return part


def _has_only_numbers(value: list[Any]) -> bool:
    return all(_has_only_numbers(v) if isinstance(v, list) else isinstance(v, bool | int) for v in value)


_EQUALITIES = {torch.eq, torch.ne, torch.Tensor.eq, torch.Tensor.ne, _TENSOR.__eq__, _TENSOR.__ne__}
_COMPARISONS = ("gt", "ge", "lt", "le", "eq", "ne")


@handles(
    *(getattr(place, name) for place in (torch, torch.Tensor) for name in _COMPARISONS), _TENSOR.__eq__, _TENSOR.__ne__
)
def _compare_numbers(mode: DeviceMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """`if loss > limit`: outside the model it is decided by the value that `.item()` would have given."""
    result = func(*args, **kwargs)
    twins = mode.operators.twins
    if not mode.is_virtual(result) or result.numel() != 1:
        return result
    # Inside, it is a real decision; but a number that was computed is zero only in degenerate cases.
    inside = mode.operators.modules.depth > 0
    if inside and not (func in _EQUALITIES and len(args) == 2 and isinstance(args[1], int | float) and args[1] == 0):
        return result
    if torch._C._functorch.is_functorch_wrapped_tensor(result):  # inside `vmap` there are no branches
        return result
    if not mode.knows(result):
        with mode.operators.recorder.aside():
            sides = [_plausible(mode, side) for side in (*args, *kwargs.values())]
            basis = Basis.BOUND if inside else Basis.FACT
            twins.learn(result, torch.as_tensor(func(*sides)).reshape(result.shape), basis)
    return result


def _plausible(mode: DeviceMode, value: Any) -> Any:
    if not mode.is_virtual(value):
        return value
    known = mode.operators.twins.value(value)
    return torch.ones(value.shape, dtype=value.dtype) if known is None else known

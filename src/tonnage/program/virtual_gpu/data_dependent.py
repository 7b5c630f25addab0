"""Operators whose result's size depends on values: exact where the values are known, the largest possible otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tonnage.program.virtual_gpu.callers import asker
from tonnage.program.virtual_gpu.errors import DataDependent
from tonnage.program.virtual_gpu.guards import passing
from tonnage.program.virtual_gpu.rules import aten, rule
from tonnage.program.virtual_gpu.values import FULL_MASK, Basis


def _count_nonzero(mode: Any, tensor: torch.Tensor) -> int:
    known = mode.twins.value(tensor)
    if known is not None:
        return int(torch.count_nonzero(known))
    mode.recorder.warn(FULL_MASK)
    return tensor.numel()


def _empty(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(tuple(shape), dtype=dtype, device="meta")


@rule(aten.nonzero.default)
def _nonzero(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor:  # noqa: ARG001
    return _empty((_count_nonzero(mode, args[0]), args[0].dim()), torch.int64)


@rule(aten.masked_select.default)
def _masked_select(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor:  # noqa: ARG001
    tensor, mask = args
    whole = torch.broadcast_shapes(tensor.shape, mask.shape)
    repeats = torch.Size(whole).numel() // max(mask.numel(), 1)
    return _empty((_count_nonzero(mode, mask) * repeats,), tensor.dtype)


@rule(aten.index.Tensor)
def _index(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return func(args[0], _without_masks(mode, args[1]), **kwargs)


@rule(aten.index_put.default, aten.index_put_.default, aten._unsafe_index_put.default)
def _index_put(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:  # noqa: ARG001
    # The meta kernel cannot judge whether the values fit the mask; sizes are the caller's business here.
    if func is aten.index_put_.default:
        return args[0]
    return torch.empty_like(args[0]) if any(_is_mask(i) for i in args[1]) else func(*args, **kwargs)


def _is_mask(index: torch.Tensor | None) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)


def _without_masks(mode: Any, indices: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """Masks replaced by as many index vectors as they have dimensions, as CUDA does before it gathers."""
    plain: list[torch.Tensor | None] = []
    for index in indices:
        if index is not None and _is_mask(index):
            count = int(torch.count_nonzero(index)) if not index.is_meta else _count_nonzero(mode, index)
            plain += [_empty((count,), torch.int64) for _ in range(index.dim())]
        else:
            plain.append(index.to("meta") if index is not None else None)
    return plain


@rule(aten._unique2.default, aten.unique_dim.default, aten.unique_consecutive.default, aten._unique.default)
def _unique(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    known = mode.twins.value(args[0])
    if known is None:
        mode.recorder.warn(FULL_MASK)
        known = torch.arange(args[0].numel()).reshape(args[0].shape).to(args[0].dtype)
    return tuple(t.to("meta") for t in func(known, *args[1:], **kwargs))


@rule(aten.repeat_interleave.Tensor)
def _repeat_interleave(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor:  # noqa: ARG001
    known, total = mode.twins.value(args[0]), kwargs.get("output_size")
    if known is None and total is None:
        raise DataDependent("repeat_interleave takes its counts from values on the GPU; pass output_size")
    return _empty((int(known.sum()) if known is not None else int(total or 0),), torch.int64)


@rule(aten.bincount.default)
def _bincount(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor:  # noqa: ARG001
    known, least = mode.twins.value(args[0]), (args[2] if len(args) > 2 else kwargs.get("minlength", 0))
    if known is None and not least:
        raise DataDependent("bincount's size depends on values on the GPU; pass minlength")
    size = max(int(known.max()) + 1, least) if known is not None and known.numel() else least
    weights = args[1] if len(args) > 1 else kwargs.get("weights")
    return _empty((size,), torch.float64 if weights is not None else torch.int64)


@rule(aten._local_scalar_dense.default)
def _scalar(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:  # noqa: ARG001
    """A value that C++ code asks for. Python's `.item()` is answered in `device.py` and can say "unknown"."""
    mode.note_read(args[0])
    known = mode.twins.value(args[0])
    if mode.twins.basis(args[0]) is Basis.BOUND and (outcome := passing(asker())) is not None:
        return outcome  # torch checks its arguments
    if known is not None:
        return known.item()
    return False if args[0].dtype == torch.bool else 1.0 if args[0].is_floating_point() else 1


@rule(aten.equal.default)
def _equal(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:  # noqa: ARG001
    mode.note_read(args[0])
    left, right = (mode.twins.value(t) if t.is_meta else t for t in args)
    return left is not None and right is not None and bool(torch.equal(left, right))


@rule(aten._ctc_loss.default, aten._ctc_loss.Tensor)
def _ctc_loss(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ARG001
    """The forward variables of all alignments: frames times twice the longest target, plus one."""
    probabilities, lengths = args[0], args[3]
    if isinstance(lengths, torch.Tensor):
        lengths = (mode.twins.value(lengths) if lengths.is_meta else lengths).tolist()
    frames, batch, _ = probabilities.shape
    alignments = (batch, frames, 2 * max(lengths) + 1)
    return _empty((batch,), probabilities.dtype), _empty(alignments, probabilities.dtype)


@rule(aten._ctc_loss_backward.default, aten._ctc_loss_backward.Tensor)
def _ctc_loss_backward(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor:  # noqa: ARG001
    return torch.empty_like(args[1])

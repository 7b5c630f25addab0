"""What an operator returns that has no meta kernel, or, for sparse tensors, one that forgets how many values there are:
it is run once on the host, with made-up numbers of the same shapes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch

from tonnage.program.virtual_gpu.arguments import parts_of
from tonnage.program.virtual_gpu.errors import Unsupported

_MOST_ELEMENTS = 1 << 27


def run(mode: Any, func: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Results on meta, in the shapes and layouts that the host's kernel gave them."""
    changed = _changed_argument(func, args, kwargs)
    if changed is not None:
        return changed
    made: dict[int, torch.Tensor] = {}

    def host(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in made:
                made[id(value)] = _numbers(mode, value)
            return made[id(value)]
        if isinstance(value, list | tuple):
            return type(value)(host(v) for v in value)
        return torch.device("cpu") if isinstance(value, torch.device) else value

    try:
        result = func(*host(args), **{k: host(v) for k, v in kwargs.items() if k != "generator"})
    except NotImplementedError:
        raise
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise Unsupported(f"what {func._schema.name} returns could not be found out ({reason})") from error
    return _on_meta(result)


def _changed_argument(func: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor | None:
    """The tensor that an in-place or `out=` operator writes to and returns."""
    if len(func._schema.returns) != 1:
        return None
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            return value if isinstance(value, torch.Tensor) else None
    return None


def _numbers(mode: Any, tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_meta:
        return tensor
    if tensor.layout is torch.sparse_coo:
        return _sparse_numbers(mode, tensor)
    if tensor.layout in _COMPRESSED:
        return _compressed_numbers(mode, tensor)
    if tensor.numel() > _MOST_ELEMENTS:
        raise Unsupported(f"a tensor of {tensor.numel():,} elements is too large to find out what the operator returns")
    known = mode.twins.value(tensor)
    if known is not None:
        return known.clone()  # type: ignore[no-any-return]
    blank = torch.empty(tensor.shape, dtype=tensor.dtype)
    if torch.ops.aten.is_non_overlapping_and_dense(tensor):
        blank = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    return blank.uniform_() if tensor.dtype.is_floating_point else blank.zero_()


def _sparse_numbers(mode: Any, tensor: torch.Tensor) -> torch.Tensor:
    indices, values = tensor._indices(), tensor._values()
    known = mode.twins.value(indices)
    if known is None:  # all different, as far as there is room
        sizes = tensor.shape[: tensor.sparse_dim()]
        flat = torch.arange(indices.shape[1]) % max(prod(sizes), 1)
        known = (
            torch.stack(torch.unravel_index(flat, sizes)) if sizes else indices.new_zeros(indices.shape, device="cpu")
        )
    return torch.sparse_coo_tensor(
        known, torch.ones(values.shape, dtype=values.dtype), tensor.shape, is_coalesced=tensor.is_coalesced()
    )


_COMPRESSED = {torch.sparse_csr: -2, torch.sparse_bsr: -2, torch.sparse_csc: -1, torch.sparse_bsc: -1}  # dimension


def _compressed_numbers(mode: Any, tensor: torch.Tensor) -> torch.Tensor:
    """As many values as there are; spread evenly over rows (or columns) where their places are not known."""
    ends, places, values = parts_of(tensor)
    known_ends, known_places = mode.twins.value(ends), mode.twins.value(places)
    if known_ends is None or known_places is None:
        count, lines = places.shape[-1], ends.shape[-1] - 1
        across = tensor.shape[-3 - _COMPRESSED[tensor.layout]] // (values.shape[-1] if values.dim() > 1 else 1)
        starts = torch.arange(lines + 1) * count // max(lines, 1)
        flat = torch.arange(count) - torch.repeat_interleave(starts[:-1], starts.diff())
        known_ends = starts.to(ends.dtype).expand(ends.shape)
        known_places = (flat % max(across, 1)).to(places.dtype).expand(places.shape)
    made = torch.ones(values.shape, dtype=values.dtype)
    parts = known_ends.contiguous(), known_places.contiguous(), made
    return torch.sparse_compressed_tensor(*parts, tensor.shape, layout=tensor.layout, check_invariants=False)


def _on_meta(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if value.layout in _COMPRESSED:
            ends, places, values = (part.to("meta") for part in parts_of(value))
            return torch.sparse_compressed_tensor(
                ends, places, values, value.shape, layout=value.layout, check_invariants=False
            )
        if value.layout is torch.sparse_coo:
            return torch.sparse_coo_tensor(
                value._indices().to("meta"), value._values().to("meta"), value.shape, is_coalesced=value.is_coalesced()
            )
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    return type(value)(_on_meta(v) for v in value) if isinstance(value, list | tuple) else value

"""One call of an operator, and the tensors among its arguments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter


class Call(NamedTuple):
    """An operator with what it was given and what it returned; inputs and outputs are the tensors among these."""

    name: str
    func: torch._ops.OpOverload
    args: Sequence[Any]
    kwargs: dict[str, Any]
    inputs: list[torch.Tensor]
    outputs: list[torch.Tensor]


_LAZY = (UninitializedParameter, UninitializedBuffer)  # have no shape yet


def tensors_in(args: Sequence[Any], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    """All tensors among the arguments; of a sparse tensor, those that it is made of."""
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, torch.Tensor):
            if value.layout is not torch.strided:
                yield from parts_of(value)
            elif value.__class__ not in _LAZY:
                yield value
        elif isinstance(value, list | tuple):
            yield from tensors_in(value, {})


def parts_of(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return ()

"""Sparse tensors on the virtual GPU: what CUDA's kernels for COO tensors allocate, from the number of entries alone.

These are the operators of sparse gradients, as `nn.Embedding(sparse=True)` makes them, and of the optimizers that take
them. Each is taken apart into the dense operators that CUDA runs for it (ATen's SparseCUDATensorMath.cu and
SparseCUDATensor.cpp; the parts that are shared with the host were watched there). Only places of entries are looked at,
where they are known; no values are made up, and no table is made on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch

from tonnage.program.virtual_gpu import stand_in

aten = torch.ops.aten
Rule = Callable[[Any, Sequence[Any], dict[str, Any]], Any]
_RULES: dict[Any, Rule] = {}


def find(func: torch._ops.OpOverload) -> Rule | None:
    """The rule of an operator for sparse tensors. It accounts for everything that happens itself."""
    return _RULES.get(func)


def concerns(args: Sequence[Any]) -> bool:
    """Is one of the first two arguments a COO tensor on meta, or a list with one?"""
    return any(any(map(_is_coo, a)) if isinstance(a, list | tuple) else _is_coo(a) for a in args[:2])


def _is_coo(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.sparse_coo and value.is_meta


def _rule(func: Any) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        _RULES[func] = rule
        return rule

    return register


@_rule(aten.clone.default)
def _clone(mode: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor:  # noqa: ARG001
    """Autograd keeps the parts of a first sparse gradient as they are. Where tensors are watched as they are here, more
    references to them exist, and it makes a copy that a real run does not have."""
    tensor = args[0]
    indices, values = tensor._indices(), tensor._values()
    is_kept = torch._C._current_graph_task_id() != -1 and not torch.is_grad_enabled()
    if not (is_kept and indices.is_contiguous() and values.is_contiguous()):
        indices, values = (_dense(mode, aten.clone.default, part) for part in (indices, values))
    return _coo(tensor, indices, values, tensor.is_coalesced())


@_rule(aten.add.Tensor)
def _add(mode: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """CUDA does not merge the entries of two sparse tensors; it puts them one after the other."""
    left, right = args[:2]
    if not _is_coo(left):
        return _add_to_dense(mode, _dense(mode, aten.clone.default, left), right)
    return _joined(mode, left, right, kwargs)


@_rule(aten.add_.Tensor)
def _add_in_place(mode: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    total, more = args[:2]
    if not _is_coo(total):
        return _add_to_dense(mode, total, more)
    total.data = _joined(mode, total, more, kwargs)
    return total


@_rule(aten._foreach_add_.List)
def _add_each(mode: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """There is no fused kernel for sparse tensors: the list is added one by one."""
    for total, more in zip(args[0], args[1], strict=True):
        if _is_coo(total) or _is_coo(more):
            _add_in_place(mode, (total, more), kwargs)
        else:
            mode.account(aten.add_.Tensor, (total, more), kwargs, total)


@_rule(aten._foreach_mul_.Scalar)
def _scale_each(mode: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:  # noqa: ARG001
    for tensor in args[0]:
        values = tensor._values() if _is_coo(tensor) else tensor
        mode.account(aten.mul_.Scalar, (values, args[1]), {}, values)


@_rule(aten.zero_.default)
def _zero(mode: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor:  # noqa: ARG001
    """Nothing is left of it, not even the places."""
    tensor: torch.Tensor = args[0]
    indices, values = (torch.empty(shape, dtype=part.dtype, device="meta") for shape, part in _without_entries(tensor))
    tensor.data = _coo(tensor, mode.adopt(indices), mode.adopt(values), True)
    return tensor


@_rule(aten._coalesce.default)
def _coalesce(mode: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor:
    """Sorting takes two more vectors as long as the places; what it leaves of the places is not cut to size. The scratch
    memory of the sort itself is not counted: it is gone before the larger values are made."""
    tensor = args[0]
    indices, values = tensor._indices(), tensor._values()
    dims, count = indices.shape
    flat, order, offsets = (mode.adopt(torch.empty(1, count, dtype=torch.int64, device="meta")) for _ in range(3))
    left = _count_distinct(mode, tensor)
    places = flat[:, :left] if dims == 1 else mode.adopt(torch.empty(dims, left, dtype=torch.int64, device="meta"))
    summed = torch.empty((left, *values.shape[1:]), dtype=values.dtype, device="meta")
    result = _coo(tensor, places, summed, True)
    mode.account(aten._coalesce.default, args, kwargs, result)
    del flat, order, offsets
    return result


@_rule(aten.sparse_mask.default)
def _sparse_mask(mode: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The rows at the mask's places are gathered, and multiplied by ones."""
    dense, mask = args[:2]
    if _is_coo(dense):
        result = stand_in.run(mode, aten.sparse_mask.default, args, kwargs)
        mode.account(aten.sparse_mask.default, args, kwargs, result)
        return result
    places, shape = mask._indices(), mask._values().shape
    gathered = torch.empty(shape, dtype=dense.dtype, device="meta")
    mode.account(aten.index.Tensor, (dense, list(places)), {}, gathered)
    indices = _dense(mode, aten.clone.default, places)
    values = torch.empty(shape, dtype=dense.dtype, device="meta")
    mode.account(aten.mul.Tensor, (gathered, gathered), {}, values)
    return _coo(dense, indices, values, mask.is_coalesced())


# -- parts ----------------------------------------------------------------------------------------------------------------


def _coo(like: torch.Tensor, indices: torch.Tensor, values: torch.Tensor, is_coalesced: bool) -> torch.Tensor:
    return torch.sparse_coo_tensor(indices, values, like.shape, is_coalesced=is_coalesced, check_invariants=False)


def _dense(mode: Any, func: Any, tensor: torch.Tensor) -> torch.Tensor:
    """The result of an operator that gives a dense tensor of the same shape."""
    result = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
    mode.account(func, (tensor,), {}, result)
    return result


def _joined(mode: Any, left: torch.Tensor, right: torch.Tensor, kwargs: dict[str, Any]) -> torch.Tensor:
    """The entries of both; without a synchronisation that would tell how many are at the same place."""
    if not _is_coo(right):
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")  # as torch says it
    if right._nnz() == 0:
        return _copied(mode, left)
    if left._nnz() == 0:
        return _copied(mode, right)
    values = right._values()
    if kwargs.get("alpha", 1) != 1:
        scaled = torch.empty(values.shape, dtype=values.dtype, device="meta")
        mode.account(aten.mul.Scalar, (values, kwargs["alpha"]), {}, scaled)
        values = scaled
    parts = []
    for first, second, dim in ((left._indices(), right._indices(), 1), (left._values(), values, 0)):
        joined = torch.cat([first, second], dim)
        mode.account(aten.cat.default, ([first, second], dim), {}, joined)
        parts.append(joined)
    total = _coo(left, parts[0], parts[1], False)
    return _coalesce(mode, (total,), {}) if total._nnz() > total.numel() else total


def _copied(mode: Any, tensor: torch.Tensor) -> torch.Tensor:
    parts = [_dense(mode, aten.clone.default, part) for part in (tensor._indices(), tensor._values())]
    return _coo(tensor, parts[0], parts[1], tensor.is_coalesced())


def _add_to_dense(mode: Any, total: torch.Tensor, entries: torch.Tensor) -> torch.Tensor:
    """Only the rows that the entries name are read and written."""
    mode.account(aten.index_add_.default, (total, 0, entries._indices()[0], entries._values()), {}, None)
    return total


def _without_entries(tensor: torch.Tensor) -> tuple[tuple[tuple[int, ...], torch.Tensor], ...]:
    indices, values = tensor._indices(), tensor._values()
    return ((indices.shape[0], 0), indices), ((0, *values.shape[1:]), values)


def _count_distinct(mode: Any, tensor: torch.Tensor) -> int:
    """How many different places there are; where nobody knows, as many as there can be."""
    indices = tensor._indices()
    known = mode.twins.value(indices)
    if known is None:
        return min(indices.shape[1], prod(tensor.shape[: tensor.sparse_dim()]))
    return int(torch.unique(known, dim=1).shape[1])

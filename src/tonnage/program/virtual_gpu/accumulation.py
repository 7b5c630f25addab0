"""How autograd adds up gradients that reach a tensor from several sides.

The engine adds in place when it holds the last reference to what it has so far; that saves a block and decides many a
peak. For meta tensors it never does, so the virtual GPU decides in its place, by the same condition. How many references
a tensor has when only the engine holds it depends on the version of torch: it is counted once, on a small example.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

add = torch.ops.aten.add.Tensor
add_in_place = torch.ops.aten.add_.Tensor
Counts = tuple[int, int]


class InPlaceAccumulation:
    """Recognises the engine's own additions among all others."""

    def __init__(self) -> None:
        self._held_by_engine = _count_on_example()

    def applies(self, args: Sequence[Any]) -> bool:
        """May the engine add the second gradient to the first in place?"""
        if len(args) != 2 or torch.is_grad_enabled() or torch._C._current_graph_task_id() == -1:
            return False
        total, more = args
        if not (isinstance(total, torch.Tensor) and isinstance(more, torch.Tensor)) or not total.is_meta:
            return False
        return (
            total.shape == more.shape
            and total.dtype == more.dtype
            and total.untyped_storage().nbytes() == total.numel() * total.element_size()
            and _counts(total) == self._held_by_engine
        )


def _counts(tensor: torch.Tensor) -> Counts:
    return tensor._use_count(), torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)  # type: ignore[attr-defined]


class _Watch(TorchDispatchMode):
    """Looks at the first addition through the same number of Python frames as the virtual GPU does."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counts = (-1, -1)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        with torch._C.DisableTorchFunction():
            return self._dispatch(func, args, kwargs or {})

    def _dispatch(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if func is add and self.seen == (-1, -1):
            self.look(args)
        if func is torch.ops.aten.expand.default:
            return func(*args, **kwargs)
        # The kernels themselves do not matter; for meta tensors they run in Python and import half a second of packages.
        shape = () if func in (torch.ops.aten.sum.default, torch.ops.aten.ones_like.default) else (2,)
        return torch.empty(shape, device="meta")

    def look(self, args: Sequence[Any]) -> None:
        total, _ = args
        self.seen = _counts(total)


def _count_on_example() -> Counts:
    leaf = torch.empty(2, device="meta", requires_grad=True)
    watch = _Watch()
    with watch:
        shared = leaf * 1
        torch.autograd.backward(((shared * 2) * (shared * 3)).sum())
    return watch.seen

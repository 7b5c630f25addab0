"""Works as columns, so that a GPU is evaluated for all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tonnage.estimate.kernels.work import KINDS, Work

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

ARITHMETICS = ("fp32", "tf32", "fp16", "bf16", "fp64")


@dataclass(frozen=True, kw_only=True)
class WorkTable:
    """One entry per work in every column. `footprint` is what a program touches between two uses of a byte."""

    kind: Integers
    arithmetic: Integers
    names: tuple[str, ...]
    operations: Floats
    fresh_bytes: Floats
    read_bytes: Floats
    written_bytes: Floats
    footprint: Floats
    itemsize: Floats
    rows: Floats
    columns: Floats
    depth: Floats
    batch: Floats
    launches: Floats
    window: Floats
    groups: Floats
    stride: Floats
    dims: Floats
    images: Floats
    side: Floats
    first_transposed: Flags
    second_transposed: Flags
    channels_last: Flags
    strided: Flags

    @property
    def bytes(self) -> Floats:
        return self.read_bytes + self.written_bytes

    @cached_property
    def variants(self) -> tuple[str, ...]:
        """Names with what makes PyTorch choose another kernel: the size of an element and the order of dimensions."""
        mixed = np.where((self.kind == KINDS.index("pointwise")) & (self.groups > 1), " mixed", "")
        indexed = np.where(self.strided, " strided", np.where(self.dims > 1, " indexed", mixed))
        orders = np.where(self.channels_last & (self.dims == 1), " channels last", indexed)
        sizes = self.itemsize.astype(np.int64)
        return tuple(f"{name} {size}{order}" for name, size, order in zip(self.names, sizes, orders, strict=True))

    def __len__(self) -> int:
        return len(self.kind)

    def where(self, chosen: Flags | Integers) -> WorkTable:
        """Some of the works."""
        columns: dict[str, Any] = {name: getattr(self, name)[chosen] for name in _COLUMNS}
        names = tuple(np.array(self.names, dtype=object)[chosen])
        return WorkTable(names=names, **columns)

    @classmethod
    def of(cls, works: Sequence[Work], footprint: Sequence[float] | float) -> WorkTable:
        columns: dict[str, Any] = {
            name: np.array([getattr(work, name) for work in works], np.float64) for name in _NUMBERS
        }
        columns |= {name: np.array([getattr(work, name) for work in works], np.bool_) for name in _FLAGS}
        return cls(
            kind=np.array([KINDS.index(work.kind) for work in works], dtype=np.int64),
            arithmetic=np.array([ARITHMETICS.index(work.arithmetic) for work in works], dtype=np.int64),
            names=tuple(work.name for work in works),
            footprint=np.broadcast_to(np.asarray(footprint, dtype=np.float64), (len(works),)),
            **columns,
        )


_NUMBERS = (
    "operations", "fresh_bytes", "read_bytes", "written_bytes", "itemsize", "rows", "columns", "depth", "batch",
    "launches", "window", "groups", "stride", "dims", "images", "side",
)  # fmt: skip
_FLAGS = ("first_transposed", "second_transposed", "channels_last", "strided")
_COLUMNS = ("kind", "arithmetic", "footprint", *_NUMBERS, *_FLAGS)

"""The numbers of the kernel model: shares of what a data sheet states, or clock cycles, for each class of kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from math import isfinite
from operator import attrgetter

import numpy as np

from tonnage.estimate.kernels.rates import Library, Rates
from tonnage.estimate.kernels.table import ARITHMETICS, Floats, Integers, WorkTable
from tonnage.estimate.kernels.work import KINDS

TILED = ("product", "convolution", "convolution_data", "convolution_weight")
UNITS = ("simt", "tf32", "half")  # plain units, or tensor cores by the width of their operands
ATTENTIONS = ("attention", "attention_backward")
_FP32, _TF32, _HALF = 0, (1,), (2, 3)
# Channels are rows, or far apart in channels-last.
_BATCH = tuple(kind for kind in KINDS if kind.startswith(("batch_normalisation", "cudnn_normalisation")))
_IS_BATCH = np.array([kind in _BATCH for kind in KINDS])
_IS_CONVOLUTION = np.array([kind in TILED[1:] for kind in KINDS])


@dataclass(frozen=True, slots=True, kw_only=True)
class KindConstants:
    """How well kernels of one class use a GPU. A class uses the constants that its formula mentions."""

    arithmetic: float = 0.95  # share of the peak rate that the best tile reaches
    bandwidth: float = 1.0  # share of what a streaming kernel gets from memory
    cache: float = 0.5  # share of the last-level cache's bandwidth
    launch_cycles: float = 1800.0  # from the start of a kernel to its end when there is nothing to do
    overlap: float = 0.3  # what is not hidden when arithmetic and memory take equally long
    # tiles
    tile_overhead: float = 8.0  # rows and columns of a tile that would cost as much as loading its operands
    depth_overhead: float = 48.0  # depth that would cost as much as filling and emptying the pipeline
    warp_overhead: float = 1.0  # warps of an SM that would cost as much as waiting for memory
    tail: float = 0.7  # how much of the last, partly filled wave of tiles is lost
    split_cycles: float = 4000.0  # to add up the parts of a product whose depth is cut
    choice: float = 0.1  # how far libraries are from choosing the fastest tile (as a logarithm)
    writes: float = 1.0  # how often a byte of the result is written
    pages: float = 0.1  # cost of short pieces where both operands are read along the depth
    odd: float = 0.0  # slower by this share for each halving of the alignment below 16 bytes
    # convolutions
    winograd: float = 0.75  # share of the peak rate in transformed products
    winograd_large: float = 0.8  # the same for the larger transformation, which goes through memory
    conversion: float = 1.0  # passes over images that have to be brought into another order
    # chains of dependent work
    step_cycles: float = 400.0  # of one step that waits for the last
    again: float = 0.5  # passes over rows that are needed twice, where caches do not hold them
    row_cycles: float = 0.05  # of one value of a long row that only one SM works on


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """The constants of all classes, and how much slower or faster single operators are than their class."""

    kinds: Mapping[str, KindConstants] = field(default_factory=dict)  # by class, "class@LIBRARY" for one generation
    names: Mapping[str, float] = field(default_factory=dict)  # logarithm of the factor
    resident: float = 0.9  # share of the last-level cache that a program can keep for itself

    def of(self, name: str, library: Library = Library.HOPPER) -> KindConstants:
        """Those of a class for a generation of libraries, else of the class, else the usual ones."""
        for key in (f"{name}@{library.name}", name):
            if key in self.kinds:
                return self.kinds[key]
        return _DEFAULTS.get(name, KindConstants())

    def check(self) -> None:
        """Raises ValueError where a class is unknown or a constant is not a number that makes sense."""
        for key, constants in self.kinds.items():
            name, _, library = key.partition("@")
            if name not in CLASSES or (library and library not in Library.__members__):
                raise ValueError(f"there is no class of kernels called {key}")
            if not all(isfinite(value) and value >= 0 for value in _VALUES(constants)):
                raise ValueError(f"the constants of {key} are not all numbers")
        if not all(isfinite(value) for value in (self.resident, *self.names.values())):
            raise ValueError("factors of operators are not all numbers")

    def columns(self, classes: Integers, library: Library) -> Columns:
        table = np.zeros((len(CLASSES), len(_FIELDS)))
        for index in np.unique(classes):
            table[index] = _VALUES(self.of(CLASSES[index], library))
        return Columns(table[classes])


class Columns:
    """The constants of each work: `columns["tail"]` has one entry per row."""

    __slots__ = ("_rows",)

    def __init__(self, rows: Floats) -> None:
        self._rows = rows

    def __getitem__(self, name: str) -> Floats:
        return np.asarray(self._rows[:, _FIELDS[name]])

    def where(self, chosen: Integers | np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Columns:
        return Columns(self._rows[chosen])


def _classes() -> tuple[str, ...]:
    tiled = [f"{kind}.{unit}" for kind in (*TILED, *ATTENTIONS) for unit in UNITS]
    batched = [f"product.{unit}.batched" for unit in UNITS]
    grouped = [f"{kind}.{groups}" for groups in ("depthwise", "grouped") for kind in TILED[1:]]
    grouped += [f"{kind}.channels_last" for kind in _BATCH]
    return (*tiled, *batched, *grouped, *(kind for kind in KINDS if kind not in (*TILED, *ATTENTIONS)))


CLASSES = _classes()
_FIELDS = {constant.name: index for index, constant in enumerate(fields(KindConstants))}
_VALUES = attrgetter(*_FIELDS)
_HALVES = KindConstants(
    arithmetic=1.22, tile_overhead=19.0, depth_overhead=175.0, warp_overhead=0.93, split_cycles=4450.0, overlap=0.16,
    launch_cycles=5000.0, cache=0.82, odd=1.0,
)  # fmt: skip
# Fitted to public latencies of 8 GPUs from Pascal to Hopper (benchmarks/accuracy/gpu_ops.py). Generations of libraries
# differed less than the fit could tell, apart from the tiles they have.
PUBLIC: Mapping[str, KindConstants] = {
    "product.simt": KindConstants(
        arithmetic=1.17, tile_overhead=6.7, depth_overhead=26.5, tail=0.65, split_cycles=16100.0, overlap=0.165,
        cache=0.49, writes=1.54, pages=0.325, choice=0.06,
    ),
    "product.simt.batched": KindConstants(
        arithmetic=1.07, tile_overhead=6.1, depth_overhead=11.0, tail=0.76, overlap=0.31, bandwidth=0.85, choice=0.3,
    ),
    "product.half": _HALVES,
    "convolution.simt": KindConstants(
        arithmetic=0.91, tile_overhead=11.0, depth_overhead=51.0, tail=0.7, split_cycles=4100.0, overlap=0.65,
        choice=0.055, winograd=0.71, winograd_large=0.93,
    ),
}  # fmt: skip
_DEFAULTS: Mapping[str, KindConstants] = {
    **PUBLIC,
    **{kind: KindConstants(row_cycles=0.6) for kind in ("pointwise", "movement")},
    "product.half.batched": _HALVES,
    "product.tf32": _HALVES,
    "product.tf32.batched": _HALVES,
    "convolution_data.simt": PUBLIC["convolution.simt"],
    "convolution_weight.simt": PUBLIC["convolution.simt"],
    **{f"{kind}.grouped": replace(_HALVES, arithmetic=0.2) for kind in TILED[1:]},
    **{f"{kind}.depthwise": KindConstants(bandwidth=0.5, arithmetic=0.2) for kind in TILED[1:]},
    **{f"{kind}.{unit}": replace(_HALVES, arithmetic=0.6) for kind in TILED[1:] for unit in UNITS[1:]},
    **{f"{kind}.{unit}": KindConstants(arithmetic=0.5, tile_overhead=50.0) for kind in ATTENTIONS for unit in UNITS},
    **{
        kind: KindConstants(arithmetic=0.1, tile_overhead=40.0, step_cycles=2000.0)
        for kind in ("recurrent", "recurrent_backward")
    },
}
_KIND_CLASS = np.array([[CLASSES.index(f"{kind}.{unit}") if f"{kind}.{unit}" in CLASSES else CLASSES.index(kind)
                         for unit in UNITS] for kind in KINDS])  # fmt: skip
_LAST_CLASS = np.array([CLASSES.index(f"{kind}.channels_last") if kind in _BATCH else 0 for kind in KINDS])
_GROUPED_CLASS = np.array([[CLASSES.index(f"{kind}.{groups}") if f"{kind}.{groups}" in CLASSES else 0
                            for groups in ("grouped", "depthwise")] for kind in KINDS])  # fmt: skip


def classes_of(table: WorkTable, rates: Rates) -> Integers:
    """The class of each work on a GPU: one without tensor cores for an arithmetic computes in its plain units."""
    peak, plain = rates.operations, rates.operations[_FP32]
    has_tensor_cores = [
        peak[index] > 1.5 * plain if index in (*_TF32, *_HALF) else False for index in range(len(ARITHMETICS))
    ]
    unit = np.array([0 if not has else 1 if index in _TF32 else 2 for index, has in enumerate(has_tensor_cores)])
    found = _KIND_CLASS[table.kind, unit[table.arithmetic]]
    batched = (table.kind == 0) & (table.batch > 1)
    found = np.where(batched, CLASSES.index("product.simt.batched") + unit[table.arithmetic], found)
    last = table.channels_last & _IS_BATCH[table.kind]
    found = np.where(last, _LAST_CLASS[table.kind], found)
    grouped = (table.groups > 1) & _IS_CONVOLUTION[table.kind]
    return np.asarray(np.where(grouped, _GROUPED_CLASS[table.kind, is_depthwise(table).astype(int)], found))


def is_depthwise(table: WorkTable) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Convolutions whose groups have one channel: no product is left in them, only windows."""
    kind = [KINDS.index(name) for name in TILED[1:]]
    single = np.select(
        [table.kind == kind[0], table.kind == kind[1], table.kind == kind[2]],
        [table.depth == table.window, table.columns == 1, table.columns == table.window],
        default=False,
    )
    return np.asarray((table.groups > 1) & single)

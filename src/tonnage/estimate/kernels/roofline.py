"""Seconds of works on a GPU: a bounded share of its rates, with tiles and waves, caches and launches.

Every constant is a share of something that the GPU's data sheet states, or a time in clock cycles, so that it means the
same on a GPU that was never measured. The power limit is no matter of single kernels: see energy.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tonnage.estimate.kernels.chains import attention_seconds, recurrent_seconds
from tonnage.estimate.kernels.constants import CLASSES, UNITS, Columns, Constants, classes_of
from tonnage.estimate.kernels.flows import cold_share, depthwise_seconds, stream_seconds
from tonnage.estimate.kernels.images import convolution_seconds
from tonnage.estimate.kernels.rates import Rates
from tonnage.estimate.kernels.table import ARITHMETICS, Floats, WorkTable
from tonnage.estimate.kernels.tiles import candidates, chosen, only_possible, product_seconds

_NEARLY = 0.3
Formula = Callable[[WorkTable, Rates, Columns, Floats], Floats]


def seconds(table: WorkTable, rates: Rates, constants: Constants) -> Floats:
    """Seconds of each work when it runs alone at the boost clock."""
    factors = name_factors(table, constants)
    found = _seconds(table, rates, constants, factors)
    fp32, tf32 = (ARITHMETICS.index(name) for name in ("fp32", "tf32"))
    # Libraries that may use TF32 need not: where plain units are nearly as fast they take whichever is quicker.
    free = table.arithmetic == tf32
    if free.any() and rates.operations[fp32] > _NEARLY * rates.operations[tf32]:
        chosen_rows = table.where(free)
        plain = replace(chosen_rows, arithmetic=np.full(len(chosen_rows), fp32))
        found[free] = np.minimum(found[free], _seconds(plain, rates, constants, factors[free]))
    return found


def _seconds(table: WorkTable, rates: Rates, constants: Constants, factors: Floats) -> Floats:
    classes = classes_of(table, rates)
    columns = constants.columns(classes, rates.library)
    cold = cold_share(table, rates, constants.resident)
    busy = np.zeros(len(table))
    formulas = _FORMULA_OF_CLASS[classes]
    for index in np.unique(formulas):
        rows = formulas == index
        busy[rows] = _FORMULAS[index](table.where(rows), rates, columns.where(rows), cold[rows])
    launch = columns["launch_cycles"] / rates.clock * table.launches
    return np.asarray(launch + busy * factors)


def name_factors(table: WorkTable, constants: Constants) -> Floats:
    """How much longer single operators take than others of their class, by name and, where known, by variant."""
    names = constants.names
    if not names:
        return np.ones(len(table))
    known = [
        names.get(variant, names.get(name, 0.0)) for name, variant in zip(table.names, table.variants, strict=True)
    ]
    return np.asarray(np.exp(np.array(known)))


def _products(unit: str, kind: str) -> Formula:
    def formula(table: WorkTable, rates: Rates, columns: Columns, cold: Floats) -> Floats:
        tiles = candidates(rates.library, unit, kind)
        each = product_seconds(table, rates, columns, cold, tiles)
        return chosen(only_possible(table.depth, tiles, each), columns["choice"])

    return formula


def _convolutions(unit: str) -> Formula:
    return lambda table, rates, columns, cold: convolution_seconds(table, rates, columns, cold, unit)


def _formula_of(name: str) -> str:
    kind, _, rest = name.partition(".")
    if kind == "product":
        return f"{kind}.{rest if rest.endswith('batched') else rest + '.plain'}"
    if kind.startswith("convolution"):
        return f"convolution.{rest}"
    if kind.startswith(("attention", "recurrent")):
        return kind.split("_")[0]
    return "stream"


_NAMED: dict[str, Formula] = {
    **{f"product.{unit}.{kind}": _products(unit, kind) for unit in UNITS for kind in ("plain", "batched")},
    **{f"convolution.{unit}": _convolutions(unit) for unit in UNITS},
    "convolution.depthwise": depthwise_seconds,
    "convolution.grouped": _convolutions("half"),
    "attention": attention_seconds,
    "recurrent": recurrent_seconds,
    "stream": stream_seconds,
}  # fmt: skip
_FORMULAS = tuple(_NAMED.values())
_FORMULA_OF_CLASS = np.array([list(_NAMED).index(_formula_of(name)) for name in CLASSES])

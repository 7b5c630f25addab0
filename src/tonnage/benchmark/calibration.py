"""Constants for a GPU of which only a few kernels were measured: the most probable ones, given how much GPUs differ."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tonnage.benchmark.constant_fit import Rows, encoded, fields_of, minimise, with_values
from tonnage.estimate.kernels.constants import CLASSES, Constants, KindConstants
from tonnage.estimate.kernels.roofline import seconds
from tonnage.estimate.kernels.table import Floats

# How far a constant of one GPU is from that of another, as encoded, and how far a kernel is from its formula: from eight
# GPUs in public latencies (benchmarks/accuracy/gpu_ops.py).
SPREAD = 0.5
NOISE = 0.1


def calibrated_constants(
    constants: Constants, rows: Rows, *, spread: float = SPREAD, noise: float = NOISE
) -> Constants:
    """Every class that was measured moves as far as its rows justify; they count for the GPU's generation of libraries."""
    kinds = dict(constants.kinds)
    for index, name in enumerate(CLASSES):
        part = rows.of_class(index)
        if len(part.table):
            key = f"{name}@{rows.rates.library.name}"
            kinds[key] = _most_probable(key, part, constants, constants.of(name, rows.rates.library), spread, noise)
    return replace(constants, kinds=kinds)


def _most_probable(
    key: str, rows: Rows, constants: Constants, before: KindConstants, spread: float, noise: float
) -> KindConstants:
    names = fields_of(key.partition("@")[0])
    centre = np.array([encoded(name, getattr(before, name)) for name in names])

    def residuals(steps: Floats) -> Floats:
        tried = replace(constants, kinds={**constants.kinds, key: with_values(before, names, centre + spread * steps)})
        error = np.log(seconds(rows.table, rows.rates, tried) / rows.measured) / noise
        return np.concatenate([error, steps])

    return with_values(before, names, centre + spread * minimise(residuals, np.zeros(len(names)), most=12, robust=1.0))

"""Fits power while idle, power while busy, and what an operation and a byte cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tonnage.benchmark.extras import nonnegative
from tonnage.benchmark.step_samples import StepSample
from tonnage.errors import UsageError
from tonnage.estimate.energy import EnergyModel, node_factors
from tonnage.estimate.kernels.table import ARITHMETICS
from tonnage.estimate.timeline import Floats

LEAST_SAMPLES = 12
_OUTLIER = 0.1  # relative error from which a sample counts less
_ROUNDS = 20


def fit_energy(samples: Sequence[StepSample], start: EnergyModel) -> EnergyModel:
    """Robust non-negative regression of joules on seconds, operations and bytes."""
    usable = [sample for sample in samples if sample.energy_joules and sample.busy_seconds]
    if len(usable) < LEAST_SAMPLES:
        raise UsageError(
            f"{len(usable)} steps with measured energy are too few: {LEAST_SAMPLES} are needed",
            "measure more: tonnage bench run",
        )
    features = np.array([_features(sample) for sample in usable])
    joules = np.array([sample.energy_joules for sample in usable], dtype=np.float64)
    found = _robust(features, joules)
    idle, busy, single, tensor, half, byte = found
    before = start.picojoules_operation  # for arithmetic that no sample has
    known = (single or before[0], tensor or before[1], half or before[2], half or before[3])
    return EnergyModel(
        idle_share=float(idle),
        busy_share=float(busy),
        picojoules_operation=(*(float(value) for value in known), start.picojoules_operation[4]),
        picojoules_byte=float(byte),
    )


def _features(sample: StepSample) -> list[float]:
    """Watt-seconds of the board's power while there and while busy; operations by arithmetic; bytes; in 10^12."""
    step, gpu = sample.step, sample.gpu
    calls = np.bincount(step.operator, minlength=len(step.operators))[step.work_operator] / step.turns
    seconds = sample.energy_step_seconds or sample.step_seconds
    operations = [
        float((step.works.operations * calls)[step.works.arithmetic == ARITHMETICS.index(name)].sum())
        * float(node_factors(gpu)[ARITHMETICS.index(name)])
        for name in ("fp32", "tf32", "fp16", "bf16")
    ]
    return [
        gpu.tdp_watts * seconds,
        gpu.tdp_watts * min(sample.busy_seconds or 0.0, seconds),
        operations[0] * 1e-12,
        operations[1] * 1e-12,
        (operations[2] + operations[3]) * 1e-12,
        float((step.works.bytes * calls).sum()) * 1e-12,
    ]


def _robust(features: Floats, target: Floats) -> Floats:
    """Relative errors count, large ones less."""
    weights = 1 / target
    found = nonnegative(features * weights[:, None], target * weights)
    for _ in range(_ROUNDS):
        errors = features @ found / target - 1
        less = weights / np.sqrt(1 + (errors / _OUTLIER) ** 2)
        found = nonnegative(features * less[:, None], target * less)
    return found

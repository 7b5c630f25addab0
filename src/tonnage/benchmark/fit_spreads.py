"""Bounds of time estimates: how far measured steps were from estimates, by split conformal prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tonnage.benchmark.cluster_training import conformal_quantile
from tonnage.benchmark.step_samples import StepSample
from tonnage.estimate.step_time import StepTime, time_step
from tonnage.estimate.time_model import Spreads, TimeModel

_QUANTITIES = {
    "step_seconds": "step_seconds",
    "forward_seconds": "forward_seconds",
    "backward_seconds": "backward_seconds",
    "optimizer_seconds": "optimizer_seconds",
    "energy_joules_step": "energy_joules",
}
_NEGLIGIBLE = 1e-5
_LEAST = 10  # errors, to say anything about nine of ten


def fit_spreads(samples: Sequence[StepSample], model: TimeModel) -> Spreads:
    """`samples` should be steps that the other parts of the model were not fitted to."""
    errors = spread_errors(samples, model)
    own = {
        name: conformal_quantile(values, model.spreads.coverage)
        for name, values in errors.items()
        if len(values) >= _LEAST
    }
    power = errors.get("energy_joules_step")
    if power is not None and len(power) >= _LEAST:
        own["power_watts"] = own["energy_joules_step"]
    factors = dict(model.spreads.factors)
    # Where shapes were measured the kernels are known better; the host is not, so no narrower bounds are promised.
    for basis in ("calibrated", "measured"):
        factors[basis] = {**factors.get(basis, {}), **own}
    return replace(model.spreads, factors=factors)


def spread_errors(
    samples: Sequence[StepSample], model: TimeModel
) -> Mapping[str, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Absolute logarithms of measured over estimated, by quantity."""
    found: dict[str, list[float]] = {name: [] for name in _QUANTITIES}
    for sample in samples:
        times = time_step(sample.step, sample.gpu, model)
        for name, measured_name in _QUANTITIES.items():
            measured, estimated = getattr(sample, measured_name), _estimated(times, name)
            if measured and measured > _NEGLIGIBLE and estimated > 0:
                found[name].append(abs(float(np.log(measured / estimated))))
    return {name: np.array(values) for name, values in found.items()}


def _estimated(times: StepTime, name: str) -> float:
    return times.energy_joules if name == "energy_joules_step" else float(getattr(times, name))

"""Bounds of time estimates: how far measured steps were from estimates, by split conformal prediction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tonnage.benchmark.cluster_training import conformal_quantile
from tonnage.benchmark.step_samples import StepSample
from tonnage.estimate.step_time import StepTime, time_step
from tonnage.estimate.time_model import Spreads, TimeModel

# What is estimated, and what a sample calls it.
_MEASURED = {
    "step_seconds": "step_seconds",
    "forward_seconds": "forward_seconds",
    "backward_seconds": "backward_seconds",
    "optimizer_seconds": "optimizer_seconds",
    "energy_joules_step": "energy_joules",
}
QUANTITIES = tuple(_MEASURED)
_NEGLIGIBLE = 1e-5
_LEAST = 10  # errors, to say anything about nine of ten


def fit_spreads(samples: Sequence[StepSample], model: TimeModel) -> Spreads:
    """`samples` should be steps that the other parts of the model were not fitted to."""
    return spreads_of([step_errors(sample, model) for sample in samples], model.spreads)


def spreads_of(errors: Sequence[Mapping[str, float]], before: Spreads) -> Spreads:
    """From errors of steps on GPUs that were measured; what too few of them tell about stays as it was before."""
    own = _factors(errors, before.coverage)
    if "energy_joules_step" in own:
        own["power_watts"] = own["energy_joules_step"]
    factors = dict(before.factors)
    # Where shapes were measured the kernels are known better; the host is not, so no narrower bounds are promised.
    for basis in ("calibrated", "measured"):
        factors[basis] = {**factors.get(basis, {}), **own}
    return replace(before, factors=factors)


def _factors(errors: Sequence[Mapping[str, float]], coverage: float) -> dict[str, float]:
    """Logarithms of the factor that holds this share of the errors, by quantity, where there are enough of them."""
    found = {name: np.array([abs(error[name]) for error in errors if name in error]) for name in QUANTITIES}
    return {name: conformal_quantile(values, coverage) for name, values in found.items() if len(values) >= _LEAST}


def step_errors(sample: StepSample, model: TimeModel) -> dict[str, float]:
    """Logarithms of measured over estimated, by quantity."""
    estimated = estimated_quantities(time_step(sample.step, sample.gpu, model))
    return logarithms(measured_quantities(sample), estimated)


def logarithms(measured: Mapping[str, float], estimated: Mapping[str, float]) -> dict[str, float]:
    """Of measured over estimated, for what both know."""
    return {name: float(np.log(value / estimated[name])) for name, value in measured.items() if estimated[name] > 0}


def measured_quantities(sample: StepSample) -> dict[str, float]:
    """Without what is too short to matter."""
    values = _values((name, getattr(sample, own)) for name, own in _MEASURED.items())
    return {name: value for name, value in values.items() if value > _NEGLIGIBLE}


def estimated_quantities(times: StepTime) -> dict[str, float]:
    return _values((name, getattr(times, own)) for name, own in _MEASURED.items())


def _values(pairs: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    return {name: float(value) for name, value in pairs if value is not None}

"""Fits what launching costs the host, through the simulation of both time-lines.

A phase that the GPU bounds says nothing about the host, one that the host bounds says everything; the simulation knows
which is which, so all measured steps can be used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tonnage.benchmark.extras import least_squares
from tonnage.benchmark.step_samples import StepSample
from tonnage.errors import UsageError
from tonnage.estimate.copies import CopyModel
from tonnage.estimate.host_time import HostModel
from tonnage.estimate.kernels.model import KernelModel
from tonnage.estimate.step_time import phase_seconds
from tonnage.estimate.timeline import Floats, simulate

LEAST_SAMPLES = 12
_FITTED = (
    "forward", "backward", "optimizer", "forward_call", "backward_call", "optimizer_call", "view", "entered", "listed",
    "launch", "recorded", "backward_start", "optimizer_start", "copy", "own_operator", "own_byte",
    "random_number",
)  # fmt: skip
# How much the whole step and each of its phases count.
_WEIGHTS = {"step_seconds": 1.0, "forward_seconds": 0.5, "backward_seconds": 0.5, "optimizer_seconds": 0.25}
_NEGLIGIBLE_SECONDS = 2e-5
_PRIOR = 0.05  # how strongly a constant that the samples say nothing about stays where it was


def fit_host(
    samples: Sequence[StepSample], kernels: KernelModel, start: HostModel, operators: Mapping[str, float]
) -> HostModel:
    """`operators` is what each operator was seen to cost below the dispatcher; `start` is where the search begins."""
    if len(samples) < LEAST_SAMPLES:
        raise UsageError(
            f"{len(samples)} measured steps are too few to fit the host's costs: {LEAST_SAMPLES} are needed",
            "measure more: tonnage bench run",
        )
    start = replace(start, operators=dict(operators), operator=float(np.median(list(operators.values()))), speed=1.0)
    device = [sample.device_seconds(kernels, CopyModel()) for sample in samples]
    balance = _balance([sample.family for sample in samples])
    first = np.log([getattr(start, name) for name in _FITTED])

    def residuals(logarithms: Floats) -> Floats:
        model = _with(start, logarithms)
        errors = [
            weight * _errors(sample, seconds, model)
            for sample, seconds, weight in zip(samples, device, balance, strict=True)
        ]
        return np.concatenate([*errors, _PRIOR * (logarithms - first)])

    return _with(start, least_squares(residuals, first, loss="soft_l1", f_scale=0.15, max_nfev=30))


def _balance(families: Sequence[str]) -> list[float]:
    """Weights with which each family counts alike, however often it was measured."""
    counts = Counter(families)
    shares = [len(families) / len(counts) / counts[family] for family in families]
    return [float(np.sqrt(share)) for share in shares]


def _with(model: HostModel, logarithms: Floats) -> HostModel:
    values = np.exp(logarithms).tolist()
    return replace(model, **dict(zip(_FITTED, values, strict=True)))


def _errors(sample: StepSample, device: Floats, model: HostModel) -> Floats:
    """Logarithms of predicted over measured, for the step and its phases."""
    timeline = simulate(model.seconds(sample.step), device, sample.waits())
    predicted = phase_seconds(sample.step, timeline, device)
    turns = sample.step.turns
    pairs = ((weight, predicted[name] / turns, getattr(sample, name)) for name, weight in _WEIGHTS.items())
    return np.array(
        [weight * np.log(max(p, 1e-7) / m) for weight, p, m in pairs if m is not None and m > _NEGLIGIBLE_SECONDS]
    )

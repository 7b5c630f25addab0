"""Errors of the fit on models that it has not seen: each family of sample workloads is predicted from all others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tonnage.benchmark import fit_host, fit_kernels
from tonnage.benchmark.fit_kernels import predict_samples
from tonnage.benchmark.fit_rows import FitRows
from tonnage.benchmark.fit_spreads import estimated_quantities, logarithms, measured_quantities, spreads_of
from tonnage.benchmark.fitting import fit_parts, operator_seconds
from tonnage.benchmark.kernel_samples import Sample
from tonnage.benchmark.scores import Outcome
from tonnage.benchmark.step_samples import StepSample
from tonnage.errors import TonnageError
from tonnage.estimate.kernels.table import Floats
from tonnage.estimate.model import Prediction
from tonnage.estimate.step_time import time_step
from tonnage.estimate.time_model import Spreads, TimeModel

HELD_BACK = 5  # where families are too few, every fifth measurement judges and the others teach
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Measurements that judge together: those of a family, or some keys."""

    family: str = ""
    keys: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return self.family or "every fifth measurement"

    def holds(self, family: str, key: str) -> bool:
        return family == self.family or key in self.keys


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HeldStep:
    """A step, and what a model that was fitted without it says."""

    step: StepSample
    group: str  # steps of the same group say nothing about each other's bounds
    estimated: Mapping[str, float]

    @property
    def measured(self) -> dict[str, float]:
        return measured_quantities(self.step)

    @property
    def errors(self) -> dict[str, float]:
        return logarithms(self.measured, self.estimated)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CrossValidation:
    """All that was held back, each predicted by a model that had not seen it."""

    folds: tuple[Fold, ...]
    steps: tuple[HeldStep, ...]
    kernels: tuple[Sample, ...]
    kernel_seconds: Floats  # as predicted


def folds_of(rows: FitRows) -> tuple[Fold, ...]:
    """One for each family, as long as what remains is enough to fit host and kernels to."""
    families = Counter(step.family for step in rows.steps)
    enough = all(
        len(rows.steps) - count >= fit_host.LEAST_SAMPLES
        and sum(sample.family != family for sample in rows.kernels) >= fit_kernels.LEAST_SAMPLES
        for family, count in families.items()
    )
    if len(families) >= 2 and enough:
        return tuple(Fold(family=family) for family in sorted(families))
    fold = Fold(keys=frozenset(rows.keys[::HELD_BACK]))
    left = sum(not fold.holds(sample.family, sample.key) for sample in rows.all_kernels)
    if left < fit_kernels.LEAST_SAMPLES:
        raise TonnageError(
            f"{len(rows.all_kernels)} kernels were measured, {left} without every fifth measurement, which judges; "
            f"a fit needs at least {fit_kernels.LEAST_SAMPLES} of those",
            "measure more: tonnage bench run",
        )
    return (fold,)


def cross_validate(
    rows: FitRows, folds: Sequence[Fold], start: TimeModel, progress: Progress = lambda text: None
) -> CrossValidation:
    """`start` must not have seen the steps. Single layers always teach where whole families judge."""
    steps: list[HeldStep] = []
    kernels: list[Sample] = []
    seconds: list[Floats] = [np.zeros(0)]
    for fold in folds:
        model = _taught(rows, fold, start, _about(fold, progress))
        held = [sample for sample in rows.kernels if fold.holds(sample.family, sample.key)]
        steps += _held_steps([step for step in rows.steps if fold.holds(step.family, step.name)], fold, model)
        kernels += held
        seconds.append(predict_samples(model.kernels, held))
    return CrossValidation(
        folds=tuple(folds), steps=tuple(steps), kernels=tuple(kernels), kernel_seconds=np.concatenate(seconds)
    )


def _about(fold: Fold, progress: Progress) -> Progress:
    return lambda text: progress(f"without {fold.name}: {text}")


def _taught(rows: FitRows, fold: Fold, start: TimeModel, progress: Progress) -> TimeModel:
    """Operators with measured shapes are left out: they would tell what they took in the very step that judges."""
    return fit_parts(
        [sample for sample in rows.all_kernels if not fold.holds(sample.family, sample.key)],
        [step for step in rows.steps if not fold.holds(step.family, step.name)],
        operator_seconds(cost for cost in rows.costs if not fold.holds(cost.family, cost.key)),
        replace(start, measured={}),
        progress,
    )


def _held_steps(steps: Sequence[StepSample], fold: Fold, model: TimeModel) -> list[HeldStep]:
    """Without families, halves of what was held back tell about each other's bounds."""
    return [
        HeldStep(
            step=step,
            group=fold.family or str(number % 2),
            estimated=estimated_quantities(time_step(step.step, step.gpu, model)),
        )
        for number, step in enumerate(steps)
    ]


def outcomes_of(steps: Sequence[HeldStep], coverage: float) -> list[Outcome]:
    """Bounds of a step come from errors of other groups: its own would hold what they were made from."""
    spreads = {
        group: spreads_of([held.errors for held in steps if held.group != group], Spreads(coverage=coverage))
        for group in sorted({held.group for held in steps})
    }
    return [_outcome(held, spreads[held.group]) for held in steps]


def _outcome(held: HeldStep, spreads: Spreads) -> Outcome:
    bounds = {name: spreads.around(value, "calibrated", name) for name, value in held.estimated.items()}
    predicted = {name: Prediction(bound.value, bound.low, bound.high) for name, bound in bounds.items()}
    return Outcome(held.step.family, held.measured, predicted)

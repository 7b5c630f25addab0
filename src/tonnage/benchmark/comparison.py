"""Compares estimation models on the same rows: each is fitted to some measurements and predicts the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tonnage.benchmark import cluster_training
from tonnage.benchmark.cluster_training import folds_of
from tonnage.benchmark.fitting import (
    fit_time_model,
    is_layer,
    operator_seconds,
    read_kernels,
    read_operator_costs,
    read_steps,
)
from tonnage.benchmark.kernel_samples import Sample
from tonnage.benchmark.scores import Outcome, Score, scores_of
from tonnage.benchmark.step_samples import StepSample
from tonnage.errors import TonnageError
from tonnage.estimate.cluster_selection import Criterion
from tonnage.estimate.model import Prediction, Query
from tonnage.estimate.step_time import time_step
from tonnage.estimate.time_estimate import describe_time
from tonnage.estimate.time_model import TimeModel
from tonnage.hardware import Gpu, find_gpu
from tonnage.store.database import Database
from tonnage.store.rows import Measurement, Spread, Status

QUANTITIES = (
    "step_seconds",
    "forward_seconds",
    "backward_seconds",
    "optimizer_seconds",
    "energy_joules_step",
    "power_watts",
)
FOLDS = 5
LEAST_STEPS = 40
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Case:
    """A measured step in the forms that the models take."""

    measurement: Measurement
    gpu: Gpu
    step: StepSample
    regression: cluster_training.Sample

    def measured(self, quantity: str) -> float | None:
        value = getattr(self.measurement, quantity)
        return value.mean if isinstance(value, Spread) else value


Predictions = Mapping[str, Prediction]
Fit = Callable[[Sequence[Case]], Callable[[Case], Predictions]]


def compare(database: Database, start: TimeModel, progress: Progress = lambda text: None) -> list[Score]:
    """Every model on every fold."""
    progress("reading the database")
    cases = _cases(database)
    if len(cases) < LEAST_STEPS:
        raise TonnageError(
            f"{database.name} holds {len(cases)} measured steps of sample workloads; a comparison needs {LEAST_STEPS}",
            "measure more: tonnage bench run",
        )
    models = _models(database, start)
    found: dict[str, list[Outcome]] = {name: [] for name in models}
    for number, fold in enumerate(folds_of(len(cases), 0, FOLDS)):
        inside = set(fold.tolist())
        taught = [case for index, case in enumerate(cases) if index not in inside]
        for name, fit in models.items():
            progress(f"fold {number + 1} of {FOLDS}: {name}")
            predict = fit(taught)
            found[name] += [_outcome(cases[index], predict(cases[index])) for index in fold.tolist()]
    return [score for name, outcomes in found.items() for score in scores_of(name, outcomes, QUANTITIES)]


def _outcome(case: Case, predictions: Predictions) -> Outcome:
    measured = {name: value for name in QUANTITIES if (value := case.measured(name)) is not None}
    return Outcome(case.measurement.family, measured, predictions)


def _cases(database: Database) -> list[Case]:
    steps = {(sample.gpu.name, sample.name): sample for sample in read_steps(database)}
    found = []
    for environment, measurement in database.measurements(status=Status.OK):
        step = steps.get((environment.gpu, measurement.key))
        if step is not None:
            gpu = find_gpu(environment.gpu)
            regression = cluster_training.samples_of([(gpu, measurement)])
            found += [Case(measurement, gpu, step, sample) for sample in regression]
    return found


def _models(database: Database, start: TimeModel) -> dict[str, Fit]:
    kernels, operators = read_kernels(database), operator_seconds(read_operator_costs(database))
    return {
        "kernel model": lambda cases: _kernel_model(cases, kernels, operators, start),
        "cluster regression": lambda cases: _regression(cases, Criterion.LINEAR),
        "cluster regression, least resources": lambda cases: _regression(cases, Criterion.RESOURCES),
    }


def _kernel_model(
    cases: Sequence[Case], kernels: Sequence[Sample], operators: Mapping[str, float], start: TimeModel
) -> Callable[[Case], Predictions]:
    """Single layers always teach; of whole workloads only those of the other folds do."""
    keys = {case.measurement.key for case in cases}
    samples = [sample for sample in kernels if is_layer(sample.family) or sample.key in keys]
    model = fit_time_model(samples, [case.step for case in cases], operators, start, fitted={})

    def predict(case: Case) -> Predictions:
        times = describe_time(time_step(case.step.step, case.gpu, model), case.gpu, model)
        intervals = {name: getattr(times, name) for name in QUANTITIES}
        return {name: Prediction(i.value, i.low, i.high) for name, i in intervals.items()}

    return predict


def _regression(cases: Sequence[Case], criterion: Criterion) -> Callable[[Case], Predictions]:
    model = cluster_training.train([case.regression for case in cases], criterion=criterion)
    return lambda case: model.predict(Query(features=case.regression.features), case.gpu)

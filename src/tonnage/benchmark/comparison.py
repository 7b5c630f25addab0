"""Compares estimation models on the same rows: each is fitted to some measurements and predicts the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tonnage.benchmark import cluster_training
from tonnage.benchmark.cluster_training import folds_of
from tonnage.benchmark.fitting import fit_time_model, read_kernels, read_operator_costs, read_steps
from tonnage.benchmark.kernel_samples import Sample
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How well one model predicts one quantity on rows that it had not seen."""

    model: str
    family: str  # "all" for all of them
    quantity: str
    rows: int
    median: float
    ninetieth: float
    covered: float  # share of rows inside the 90 % interval

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


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
    found: dict[str, list[tuple[Case, Predictions]]] = {name: [] for name in models}
    for number, fold in enumerate(folds_of(len(cases), 0, FOLDS)):
        inside = set(fold.tolist())
        taught = [case for index, case in enumerate(cases) if index not in inside]
        for name, fit in models.items():
            progress(f"fold {number + 1} of {FOLDS}: {name}")
            predict = fit(taught)
            found[name] += [(cases[index], predict(cases[index])) for index in fold.tolist()]
    return [score for name, outcomes in found.items() for score in _scores(name, outcomes)]


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
    kernels, operators = read_kernels(database), read_operator_costs(database)
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
    samples = [sample for sample in kernels if sample.family.startswith("layer:") or sample.key in keys]
    model = fit_time_model(samples, [case.step for case in cases], operators, start, fitted={})

    def predict(case: Case) -> Predictions:
        times = describe_time(time_step(case.step.step, case.gpu, model), case.gpu, model)
        intervals = {name: getattr(times, name) for name in QUANTITIES}
        return {name: Prediction(i.value, i.low, i.high) for name, i in intervals.items()}

    return predict


def _regression(cases: Sequence[Case], criterion: Criterion) -> Callable[[Case], Predictions]:
    model = cluster_training.train([case.regression for case in cases], criterion=criterion)
    return lambda case: model.predict(Query(features=case.regression.features), case.gpu)


def _scores(name: str, outcomes: Sequence[tuple[Case, Predictions]]) -> list[Score]:
    families = ["all", *sorted({case.measurement.family for case, _ in outcomes})]
    scores = (
        _score(name, family, quantity, [o for o in outcomes if family in ("all", o[0].measurement.family)])
        for family in families
        for quantity in QUANTITIES
    )
    return [score for score in scores if score is not None]


def _score(name: str, family: str, quantity: str, outcomes: Sequence[tuple[Case, Predictions]]) -> Score | None:
    pairs = [(case.measured(quantity), predictions.get(quantity)) for case, predictions in outcomes]
    known = [(truth, prediction) for truth, prediction in pairs if truth and prediction is not None]
    if not known:
        return None
    errors = np.array([abs(prediction.value / truth - 1) for truth, prediction in known])
    inside = [prediction.low <= truth <= prediction.high for truth, prediction in known]
    return Score(
        model=name, family=family, quantity=quantity, rows=len(known), median=float(np.median(errors)),
        ninetieth=float(np.percentile(errors, 90)), covered=float(np.mean(inside)),
    )  # fmt: skip

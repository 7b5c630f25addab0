"""Makes a cluster model from the benchmark database: extracts the rows, calibrates the intervals, cross-validates."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tonnage.benchmark.point_features import features_of_point
from tonnage.benchmark.sampling import Source
from tonnage.benchmark.workloads.number import Value
from tonnage.benchmark.workloads.point import Point
from tonnage.benchmark.workloads.registry import FAMILIES
from tonnage.errors import InvalidFile, NotFound, UsageError
from tonnage.estimate.cluster_features import VARIABLES, Features, variables_on
from tonnage.estimate.cluster_fit import Array
from tonnage.estimate.cluster_regression import ClusterModel, labels_of
from tonnage.estimate.cluster_rows import TARGETS, Rows
from tonnage.estimate.cluster_selection import Constraints, Criterion
from tonnage.estimate.model import EstimationModel, Prediction, Query
from tonnage.hardware import Gpu
from tonnage.store.rows import Measurement, Spread, Status

FOLDS = 5
# A step is bound by the host when launching takes nearly all of it.
_HOST_BOUND_SHARE = 0.9


class Sample(NamedTuple):
    """One measurement as training data."""

    family: str
    features: Features
    gpu: Gpu
    targets: dict[str, float]
    is_host_bound: bool


class Outcome(NamedTuple):
    """What a model said about a sample that it had not seen."""

    sample: Sample
    predictions: dict[str, Prediction]


def samples_of(measurements: Iterable[tuple[Gpu, Measurement]]) -> list[Sample]:
    """The steps that worked, of families that are known; layers measured by themselves are no steps."""
    return [
        _sample(gpu, measurement)
        for gpu, measurement in measurements
        if measurement.status is Status.OK and measurement.family in FAMILIES and measurement.step_seconds is not None
    ]


def _sample(gpu: Gpu, measurement: Measurement) -> Sample:
    targets = {name: _mean(getattr(measurement, name)) for name in TARGETS}
    host, step = _mean(measurement.host_seconds), targets["step_seconds"]
    return Sample(
        family=measurement.family,
        features=features_of_point(_point(measurement)),
        gpu=gpu,
        targets=targets,
        is_host_bound=bool(host >= _HOST_BOUND_SHARE * step),
    )


def _mean(value: Spread | float | None) -> float:
    """NaN for what was not measured. A counter that showed nothing, such as energy of a very short step, counts so too."""
    number = value.mean if isinstance(value, Spread) else value
    return float(number) if number else float("nan")


def _point(measurement: Measurement) -> Point:
    structure: dict[str, Value] = {
        name: value for name, value in measurement.structure.items() if isinstance(value, int | str)
    }
    return Point(
        family=measurement.family,
        structure=structure,
        batch=measurement.batch,
        precision=measurement.precision,
        optimizer=str(measurement.settings.get("optimizer") or ""),
        memory_format=str(measurement.settings.get("memory_format", "contiguous")),
        mode=measurement.mode,
    )


def rows_of(samples: Sequence[Sample]) -> Rows:
    """Samples as the columns that a model refers to."""
    if not samples:
        raise UsageError("there are no measured steps of sample workloads to learn from", "run a campaign first")
    labels = [labels_of(sample.features, sample.gpu.name, sample.family) for sample in samples]
    variables = [variables_on(sample.features, sample.gpu) for sample in samples]
    return Rows(
        labels={name: tuple(label[name] for label in labels) for name in labels[0]},
        variables=np.array([[values[name] for name in VARIABLES] for values in variables]),
        targets={name: np.array([sample.targets[name] for sample in samples]) for name in TARGETS},
        is_host_bound=np.array([sample.is_host_bound for sample in samples]),
    )


def train(
    samples: Sequence[Sample],
    *,
    criterion: Criterion = Criterion.LINEAR,
    constraints: Constraints | None = None,
    seed: int = 0,
    coverage: float = 0.9,
) -> ClusterModel:
    """A model whose intervals are calibrated on predictions of samples that were left out (cross-conformal)."""
    bare = ClusterModel(
        rows=rows_of(samples),
        quantiles=dict.fromkeys(TARGETS, 1.0),
        criterion=criterion,
        constraints=constraints or Constraints(),
        coverage=coverage,
    )
    outcomes = [outcome for model, part in _left_out(samples, bare, seed) for outcome in predict_all(model, part)]
    quantiles = {target: conformal_quantile(_scores(outcomes, target), coverage) for target in TARGETS}
    return ClusterModel(
        rows=bare.rows, quantiles=quantiles, criterion=criterion, constraints=bare.constraints, coverage=coverage
    )


def _left_out(
    samples: Sequence[Sample], like: ClusterModel, seed: int
) -> Iterator[tuple[ClusterModel, Sequence[Sample]]]:
    """For each fold a model of all other samples, and the samples of the fold."""
    for fold in folds_of(len(samples), seed):
        inside = set(fold.tolist())
        others = np.array([index for index in range(len(samples)) if index not in inside])
        model = ClusterModel(
            rows=like.rows.take(others),
            quantiles=like.quantiles,
            criterion=like.criterion,
            constraints=like.constraints,
        )
        yield model, [samples[index] for index in fold.tolist()]


def folds_of(count: int, seed: int, folds: int = FOLDS) -> list[npt.NDArray[np.intp]]:
    """Indices in parts of equal size, by chance; the same on every machine."""
    order = Source((seed, count)).permutation(count)
    return [order[fold::folds] for fold in range(folds)]


def predict_all(model: EstimationModel, samples: Sequence[Sample]) -> list[Outcome]:
    """Any estimation model on samples that it has not seen; those that it cannot answer are left out."""
    outcomes = []
    for sample in samples:
        try:
            outcomes.append(Outcome(sample, model.predict(Query(features=sample.features), sample.gpu)))
        except UsageError:
            continue
    return outcomes


def _scores(outcomes: Sequence[Outcome], target: str) -> Array:
    """How many margins each truth was away, where the margin is that of a model with quantile 1."""
    scores = []
    for sample, predictions in outcomes:
        truth, prediction = sample.targets[target], predictions.get(target)
        if prediction is not None and np.isfinite(truth) and prediction.high > prediction.value:
            scores.append(abs(np.log(truth / prediction.value)) / np.log(prediction.high / prediction.value))
    return np.array(scores)


def conformal_quantile(scores: Array, coverage: float) -> float:
    """The ceil((n + 1) coverage)-th smallest score: an unseen score is below it with that probability."""
    if not len(scores):
        return 2.0
    rank = min(int(np.ceil((len(scores) + 1) * coverage)), len(scores))
    return float(np.sort(scores)[rank - 1])


def write_model(model: ClusterModel, path: Path) -> None:
    path.write_text(json.dumps(model.as_dict(), separators=(",", ":"), allow_nan=False) + "\n")


def read_model(path: Path) -> ClusterModel:
    """Raises `NotFound` or `InvalidFile`."""
    try:
        plain = json.loads(path.read_text())
    except FileNotFoundError:
        raise NotFound(f"there is no model {path}") from None
    except ValueError as error:
        raise InvalidFile(f"{path} is not JSON: {error}") from None
    if not isinstance(plain, dict):
        raise InvalidFile(f"{path} is not a cluster model")
    return ClusterModel.from_dict(plain)

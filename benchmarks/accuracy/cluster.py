"""How well the cluster regression predicts sample workloads that it has not seen, beside its peers.

    python benchmarks/accuracy/cluster.py [--database DATABASE] [--seed 0] [--write MODEL]

Five folds over the points; intervals are calibrated inside the training folds alone. Peers: one linear regression over all
rows, and the measured value of the nearest row. `--write` fits a model to all rows and saves it.
"""

import argparse
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tonnage.benchmark.cluster_training import (
    Outcome,
    Sample,
    folds_of,
    predict_all,
    rows_of,
    samples_of,
    train,
    write_model,
)
from tonnage.benchmark.observed_steps import OBSERVED_STEPS
from tonnage.benchmark.shipped import shipped_database
from tonnage.estimate.cluster_features import DEVICE_VARIABLES, HOST_VARIABLES, MEMORY_VARIABLES, VARIABLES
from tonnage.estimate.cluster_fit import Line, fit_line, size_of
from tonnage.estimate.cluster_regression import place_of
from tonnage.estimate.cluster_rows import BYTES, TARGETS, Rows
from tonnage.estimate.cluster_selection import Criterion, comparable, distances
from tonnage.estimate.model import EstimationModel, Prediction, Query
from tonnage.hardware import Gpu, find_gpu
from tonnage.store.database import Database, open_database
from tonnage.store.rows import HostRow, KernelRow, Measurement, Status

WORK = tuple(dict.fromkeys((*DEVICE_VARIABLES[:-1], *HOST_VARIABLES)))


@dataclass(frozen=True)
class GlobalRegression:
    """A peer: one non-negative line over all rows, for each target."""

    lines: dict[str, Line]
    name: str = "one regression"

    @classmethod
    def of(cls, rows: Rows) -> "GlobalRegression":
        lines = {}
        for target in TARGETS:
            known = np.isfinite(rows.targets[target])
            matrix, values = rows.matrix(_names(target))[known], rows.targets[target][known]
            lines[target] = fit_line(matrix, values, size_of(matrix, values))
        return cls(lines)

    def predict(self, query: Query, gpu: Gpu) -> dict[str, Prediction]:
        place = place_of(query, gpu)
        values = {
            t: float(line.at(np.array([[place.variables[n] for n in _names(t)]]))[0]) for t, line in self.lines.items()
        }
        return {target: Prediction(value, value, value) for target, value in values.items()}


@dataclass(frozen=True)
class NearestRow:
    """A peer: what the nearest comparable row measured."""

    rows: Rows
    name: str = "nearest row"

    def predict(self, query: Query, gpu: Gpu) -> dict[str, Prediction]:
        place = place_of(query, gpu)
        found = np.flatnonzero(comparable(self.rows, place, frozenset({"mode", "precision"})))
        nearest = found[np.argmin(distances(self.rows, place, found))]
        values = {target: float(self.rows.targets[target][nearest]) for target in TARGETS}
        return {target: Prediction(value, value, value) for target, value in values.items() if np.isfinite(value)}


def _names(target: str) -> tuple[str, ...]:
    return MEMORY_VARIABLES if target in BYTES else WORK


MODELS: dict[str, Callable[[Sequence[Sample]], EstimationModel]] = {
    "cluster, keep-linear": lambda samples: train(samples, criterion=Criterion.LINEAR),
    "cluster, minimise-resources": lambda samples: train(samples, criterion=Criterion.RESOURCES),
    "one regression": lambda samples: GlobalRegression.of(rows_of(samples)),
    "nearest row": lambda samples: NearestRow(rows_of(samples)),
}


class Point(NamedTuple):
    """A sample workload with what was seen of it."""

    measurement: Measurement
    kernels: list[KernelRow]
    hosts: list[HostRow]


def read_points(database: Database, gpu: str) -> list[Point]:
    kernels, hosts = defaultdict(list), defaultdict(list)
    for _, key, kernel in database.kernels(gpu=gpu, status=Status.OK):
        kernels[key].append(kernel)
    for _, key, host in database.hosts(gpu=gpu, status=Status.OK):
        hosts[key].append(host)
    measured = (m for _, m in database.measurements(gpu=gpu, status=Status.OK) if m.step_seconds is not None)
    return [Point(m, kernels[m.key], hosts[m.key]) for m in measured]


def by_chance(samples: Sequence[Sample], seed: int) -> list[list[int]]:
    return [fold.tolist() for fold in folds_of(len(samples), seed)]


def by_family(samples: Sequence[Sample]) -> list[list[int]]:
    families = sorted({sample.family for sample in samples})
    return [[i for i, sample in enumerate(samples) if sample.family == family] for family in families]


def held_out(
    samples: Sequence[Sample], folds: list[list[int]], make: Callable[[Sequence[Sample]], EstimationModel]
) -> list[Outcome]:
    outcomes = []
    for fold in folds:
        inside = set(fold)
        model = make([sample for i, sample in enumerate(samples) if i not in inside])
        outcomes += predict_all(model, [samples[i] for i in fold])
    return outcomes


def errors(
    outcomes: Sequence[Outcome], target: str, keep: Callable[[Sample], bool] = lambda sample: True
) -> np.ndarray:
    pairs = [(o.predictions.get(target), o.sample.targets[target]) for o in outcomes if keep(o.sample)]
    return np.array([abs(p.value / truth - 1) for p, truth in pairs if p is not None and np.isfinite(truth)])


def coverage(outcomes: Sequence[Outcome], target: str) -> tuple[float, float]:
    """Share of truths inside, and the median of high over low."""
    pairs = [(o.predictions.get(target), o.sample.targets[target]) for o in outcomes]
    inside = [(p.low <= truth <= p.high, p.high / p.low) for p, truth in pairs if p is not None and np.isfinite(truth)]
    return float(np.mean([hit for hit, _ in inside])), float(np.median([width for _, width in inside]))


def percent(values: np.ndarray) -> str:
    return f"{100 * np.median(values):6.1f} /{100 * np.quantile(values, 0.9):6.1f}" if len(values) else " " * 14


def same_operators(points: Sequence[Point]) -> list[list[float]]:
    """Step times of points that the host bounds, in groups whose steps launch the very same operators.

    Points whose GPU is busy half of the time, or whose copies are large, differ for a reason and are left out; so are
    recurrent networks, whose one operator launches a varying number of kernels.
    """
    groups: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for measured, kernels, hosts in points:
        step, host = measured.step_seconds.mean, measured.host_seconds.mean
        busy = sum(kernel.calls * kernel.seconds.mean for kernel in kernels) / OBSERVED_STEPS
        if measured.family == "rnn" or host < 0.9 * step or busy > 0.5 * step or measured.h2d_bytes > 2e6:
            continue
        calls: dict[tuple[str, str], int] = defaultdict(int)
        for row in hosts:
            calls[row.phase, row.operator.name] += row.calls
        settings = tuple(sorted(measured.settings.items()))
        key = (measured.family, measured.mode, measured.precision, settings, tuple(sorted(calls.items())))
        groups[key].append(step)
    return [steps for steps in groups.values() if len(steps) > 1]


def floor(groups: Sequence[Sequence[float]]) -> float:
    """Median error of whoever knows the mean of each group: 0.6745 standard deviations of a normal distribution.

    An indication, not a bound: no point was measured twice, and members of a group differ in more than noise.
    """
    logs = [np.log(steps) for steps in groups]
    squares, freedom = sum(((log - log.mean()) ** 2).sum() for log in logs), sum(len(log) - 1 for log in logs)
    return float(0.6745 * np.sqrt(squares / freedom))


def print_tables(title: str, samples: Sequence[Sample], folds: list[list[int]], names: Sequence[str]) -> None:
    families = sorted({sample.family for sample in samples})
    print(f"\n{title}: relative error in percent, median / 90th percentile\n")
    print(
        f"{'model':28} {'target':20}"
        + "".join(f"{family:>16}" for family in ("all", *families))
        + f"{'coverage':>10}{'high/low':>10}"
    )
    for name in names:
        outcomes = held_out(samples, folds, MODELS[name])
        for target in TARGETS:
            cells = [errors(outcomes, target)] + [
                errors(outcomes, target, lambda s: s.family == family) for family in families
            ]
            share, width = coverage(outcomes, target)
            bounds = f"{100 * share:9.1f}%{width:10.2f}" if width > 1 else ""
            print(f"{name:28} {target:20}" + "".join(f"{percent(cell):>16}" for cell in cells) + bounds)
        sides = {
            side: errors(outcomes, "step_seconds", lambda s: s.is_host_bound is flag)
            for side, flag in (("host", True), ("GPU", False))
        }
        print(
            f"{name:28} step_seconds by what bounds: "
            + ", ".join(f"{side} {percent(values)} ({len(values)})" for side, values in sides.items())
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", help="else the rows that come with the package")
    parser.add_argument("--gpu", default="H200")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    gpu = find_gpu(options.gpu)
    opened = open_database(options.database, create=False) if options.database else shipped_database()
    with opened as database:
        points = read_points(database, gpu.name)
    samples = samples_of((gpu, point.measurement) for point in points)
    spreads = [point.measurement.step_seconds for point in points]
    deviations = np.array([spread.deviation / spread.mean for spread in spreads])
    print(f"{len(samples)} points on {gpu.name}, {len(VARIABLES)} variables, seed {options.seed}")
    groups = same_operators(points)
    print(f"deviation of single steps: {percent(deviations)} %")
    print(
        f"same operators, other point: a median error of {100 * floor(groups):.1f} % at best ({sum(map(len, groups))} points in {len(groups)} groups)"
    )
    print_tables("Held-out points", samples, by_chance(samples, options.seed), list(MODELS))
    print_tables(
        "Held-out families", samples, by_family(samples), ["cluster, keep-linear", "one regression", "nearest row"]
    )
    if options.write:
        write_model(train(samples), options.write)


if __name__ == "__main__":
    main()

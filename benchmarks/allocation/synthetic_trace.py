"""Seeded traces of jobs: Poisson arrivals at a load, heavy-tailed lengths, gangs of up to eight GPUs, priorities."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tonnage.allocate.simulate.jobs import Jobs
from tonnage.allocate.speeds import Floats, Ints, SpeedTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What arrives. A load of one asks for all GPUs all the time, at the mean speed of each class over them."""

    jobs: int
    load: float = 0.8  # 0: all arrive at once
    median_seconds: float = 3600.0  # of a job that runs alone on the GPUs that suit it
    spread: float = 1.5  # deviation of the logarithm: the mean is three times the median
    gang_shares: tuple[tuple[int, float], ...] = ((1, 0.7), (2, 0.1), (4, 0.15), (8, 0.05))
    weights: tuple[float, ...] = (1.0,)


def make_jobs(workload: Workload, table: SpeedTable, capacity: Ints, seed: int) -> Jobs:
    """Jobs of classes that run on some of these GPUs."""
    random = np.random.default_rng(seed)
    table = table.restricted(capacity)
    classes = _classes(workload, table, random)
    seconds = workload.median_seconds * random.lognormal(0.0, workload.spread, workload.jobs)
    steps = np.maximum(np.rint(seconds * table.best[classes]), 1.0)
    return Jobs(
        classes=classes,
        steps=steps,
        arrival_seconds=arrivals(workload, table, capacity, classes, steps, random),
        weights=random.choice(workload.weights, workload.jobs),
    )


def trace_lines(jobs: Jobs, table: SpeedTable) -> Iterator[str]:
    """As a trace file has them."""
    for job in range(jobs.size):
        each = table.classes[jobs.classes[job]]
        yield (
            f"{each.name}\ttrain.py\t.\t--steps\t0\t{jobs.steps[job]:.0f}\t{each.gpus}\t{jobs.weights[job]:g}\t-1"
            f"\t{jobs.arrival_seconds[job]:.3f}\n"
        )


def _classes(workload: Workload, table: SpeedTable, random: np.random.Generator) -> Ints:
    runs = table.best > 0
    chances = np.zeros(len(table.classes))
    for gpus, share in workload.gang_shares:
        mine = runs & (table.gpus == gpus)
        chances[mine] = share / max(int(mine.sum()), 1)
    return random.choice(len(chances), workload.jobs, p=chances / chances.sum())


def arrivals(
    workload: Workload, table: SpeedTable, capacity: Ints, classes: Ints, steps: Floats, random: np.random.Generator
) -> Floats:
    if workload.load == 0:
        return np.zeros(workload.jobs)
    mean_speed = (table.alone * capacity).sum(axis=1) / ((table.alone > 0) * capacity).sum(axis=1).clip(1)
    gpu_seconds = (steps / mean_speed[classes] * table.gpus[classes]).sum()
    between = gpu_seconds / workload.jobs / (workload.load * capacity.sum())
    return np.asarray(random.exponential(between, workload.jobs).cumsum())

"""Two things at once: a GPU that computes and a network that carries, each one job after the other, in order.

A job starts when its lane is free and everything it waits for is done. While both lanes work, the GPU is slower by
the factor `1 + contention`: the kernels of a collective take multiprocessors and memory bandwidth from the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Lane(StrEnum):
    GPU = "gpu"
    NETWORK = "network"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Work of one lane. `after` holds the places in the list of jobs that must be done first, all of them earlier ones."""

    lane: Lane
    name: str
    seconds: float
    after: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """When a job ran."""

    lane: Lane
    name: str
    start_seconds: float
    end_seconds: float


def run(jobs: Sequence[Job], contention: float = 0.0) -> tuple[Span, ...]:
    """The spans of all jobs, in the order of the jobs."""
    starts, ends = [-1.0] * len(jobs), [-1.0] * len(jobs)
    left = [job.seconds for job in jobs]
    queues = {lane: [index for index, job in enumerate(jobs) if job.lane == lane] for lane in Lane}
    heads = dict.fromkeys(Lane, 0)
    now = 0.0
    while running := _startable(jobs, queues, heads, ends):
        for index in running:
            starts[index] = now if starts[index] < 0 else starts[index]
        slow = 1 + contention if len(running) == len(Lane) else 1.0
        pace = {index: 1 / slow if jobs[index].lane == Lane.GPU else 1.0 for index in running}
        first = min(running, key=lambda index: left[index] / pace[index])
        elapsed = left[first] / pace[first]
        now += elapsed
        for index in running:
            left[index] = max(left[index] - elapsed * pace[index], 0.0)
        left[first], ends[first] = 0.0, now
        heads[jobs[first].lane] += 1
    return tuple(
        Span(lane=job.lane, name=job.name, start_seconds=start, end_seconds=end)
        for job, start, end in zip(jobs, starts, ends, strict=True)
    )


def _startable(
    jobs: Sequence[Job], queues: dict[Lane, list[int]], heads: dict[Lane, int], ends: list[float]
) -> list[int]:
    """The first job of each lane, if nothing that it waits for is still to come."""
    fronts = [queue[heads[lane]] for lane, queue in queues.items() if heads[lane] < len(queue)]
    return [index for index in fronts if all(ends[other] >= 0 for other in jobs[index].after)]


class Schedule:
    """A list of jobs in the making; each `add` returns the job's place, for others to wait for."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def add(self, lane: Lane, name: str, seconds: float, *after: int) -> int:
        self.jobs.append(Job(lane=lane, name=name, seconds=seconds, after=after))
        return len(self.jobs) - 1

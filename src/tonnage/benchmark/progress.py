"""How far a run has come, how long it will go on, and what it has brought."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from tonnage.benchmark.results import Job, Measured
from tonnage.benchmark.workloads.point import Point
from tonnage.store.rows import Environment, Status


class Ending(StrEnum):
    """Why a run ended."""

    COMPLETE = "complete"
    OUT_OF_TIME = "out_of_time"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a run has brought. Counts are of points and layers; `failures` says why, for each that was not ok."""

    campaign: str
    database: str
    environment: Environment | None  # None if it was interrupted before that was known
    ending: Ending
    seconds: float
    ok: int
    out_of_memory: int
    failed: int
    skipped: int
    failed_before: int  # among those skipped
    left: int
    kernels: int
    hosts: int
    failures: tuple[Measured, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A moment of a run. `remaining_seconds` is None until something has been measured."""

    total: int
    done: int
    current: Job | None
    elapsed_seconds: float
    remaining_seconds: float | None


class Watcher(Protocol):
    """Who wants to know how a run goes on."""

    def show(self, progress: Progress) -> None: ...
    def note(self, text: str) -> None: ...


class Silence:
    """Nobody watches."""

    def show(self, progress: Progress) -> None:
        pass

    def note(self, text: str) -> None:
        pass


@dataclass(slots=True)
class Tally:
    """Counts what has come, and how long it took."""

    statuses: Counter[Status] = field(default_factory=Counter)
    kernels: int = 0
    hosts: int = 0
    failures: list[Measured] = field(default_factory=list)
    _jobs: Counter[bool] = field(default_factory=Counter)  # by "is a point"
    _seconds: defaultdict[bool, float] = field(default_factory=lambda: defaultdict(float))

    def count(self, measured: Measured) -> None:
        status = measured.measurement.status
        self.statuses[status] += 1
        self.kernels += len(measured.kernels)
        self.hosts += len(measured.hosts)
        if status is not Status.OK:
            self.failures.append(measured)

    def time(self, jobs: Iterable[Job], seconds: float) -> None:
        """The jobs of one batch are all points or all layers."""
        kinds = [isinstance(job, Point) for job in jobs]
        self._jobs.update(kinds)
        self._seconds[kinds[0]] += seconds

    def remaining_seconds(self, left: Iterable[Job]) -> float | None:
        """By the mean of what was finished, points and layers apart, since a point takes ten times as long."""
        if not self._jobs:
            return None
        overall = sum(self._seconds.values()) / self._jobs.total()
        means: Mapping[bool, float] = {kind: self._seconds[kind] / count for kind, count in self._jobs.items()}
        return sum(means.get(isinstance(job, Point), overall) for job in left)

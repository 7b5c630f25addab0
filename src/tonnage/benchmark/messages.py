"""What the runner and its measuring process say to each other, over a pipe. Nothing here needs torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tonnage import errors
from tonnage.benchmark.results import Job, Measured
from tonnage.errors import TonnageError
from tonnage.store.rows import Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """How points are measured: N + 1 steps, of which the first does not count, so many times."""

    steps: int = 20
    repetitions: int = 3
    kernels: bool = True  # also one row for each kernel
    power_seconds: float = 0.5


@dataclass(frozen=True, slots=True)
class Order:
    """To the process: measure a point, or some layers in one profile."""

    jobs: tuple[Job, ...]
    campaign: str
    method: Method


@dataclass(frozen=True, slots=True)
class Ready:
    """From the process, once: libraries are loaded, the device works."""

    environment: Environment


@dataclass(frozen=True, slots=True)
class Refused:
    """From the process instead of `Ready`: an error of Tonnage that starting again would not help."""

    kind: str
    message: str
    hint: str

    @classmethod
    def of(cls, error: TonnageError) -> Refused:
        return cls(type(error).__name__, error.message, error.hint)

    def error(self) -> TonnageError:
        kind: type[TonnageError] = getattr(errors, self.kind, TonnageError)
        return kind(self.message, self.hint)


@dataclass(frozen=True, slots=True)
class Begun:
    """From the process: this job is next; None when all have run and only their rows are being made."""

    key: str | None


@dataclass(frozen=True, slots=True)
class Finished:
    """From the process: all results of an order."""

    results: tuple[Measured, ...]


@dataclass(frozen=True, slots=True)
class Broken:
    """From the process, which then ends: the job that had begun went wrong in a way that may spoil others."""

    reason: str


Answer: TypeAlias = Ready | Refused | Begun | Finished | Broken

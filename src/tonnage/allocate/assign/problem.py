"""Tasks, types of GPUs, and who runs where: the values that all solvers share, as arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tonnage.allocate.speeds import Floats, Ints
from tonnage.errors import UsageError

Bools = NDArray[np.bool_]
KeepGoing = Callable[[], bool]


def always() -> bool:
    """Goes on until nothing better is found, or the effort is spent."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Instance:
    """Tasks that use one GPU each, and the GPUs of each type.

    Resident tasks of a GPU share its memory; the others run one after the other, and each has the GPU to itself.
    """

    seconds: Floats  # task, type; inf: cannot run there
    memory_bytes: Ints  # task, type
    counts: Ints  # GPUs of each type
    capacity_bytes: Ints  # of one GPU of each type
    resident: bool
    weights: Floats  # how much the completion of each task counts

    def __post_init__(self) -> None:
        tasks, types = self.seconds.shape
        if self.memory_bytes.shape != (tasks, types) or self.weights.shape != (tasks,):
            raise UsageError("seconds, memory and weights are not of the same tasks", "give one row for each task")
        if self.counts.shape != (types,) or self.capacity_bytes.shape != (types,):
            raise UsageError("counts and capacities are not of the same GPU types", "give one number for each type")
        if np.isnan(self.seconds).any() or (self.seconds < 0).any():
            raise UsageError("a task has negative or unknown seconds", "write inf where a task cannot run")
        if (self.memory_bytes < 0).any() or (self.counts < 0).any() or not (self.weights >= 0).all():
            raise UsageError("a memory, a number of GPUs or a weight is negative", "all of them are at least 0")

    @property
    def size(self) -> int:
        return len(self.seconds)

    @property
    def possible(self) -> Bools:
        """Task, type: there is such a GPU, the task runs on it and fits its memory alone."""
        fits = self.memory_bytes <= self.capacity_bytes
        return np.asarray(np.isfinite(self.seconds) & fits & (self.counts > 0))

    def of_tasks(self, which: Ints) -> Instance:
        return replace(
            self, seconds=self.seconds[which], memory_bytes=self.memory_bytes[which], weights=self.weights[which]
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prices:
    """What the bound pays for a second and for a byte on a GPU of each type."""

    second: Floats
    byte: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Assigned:
    """Who runs where, how good that is, and how good anything could be."""

    types: Ints  # of each task; -1: nowhere
    gpus: Ints  # index within the type; -1: nowhere
    positions: Ints  # from 0, in the order in which the tasks of a GPU run
    value: float
    bound: float  # no assignment of the placed tasks has a smaller value
    prices: Prices
    type_prices: Floats  # what one more GPU of each type would take off the bound, as far as prices tell
    unplaced: Ints

    @property
    def gap(self) -> float:
        return self.value / self.bound - 1.0 if self.bound > 0 else (0.0 if self.value <= 0 else np.inf)

"""Who shall run next, and for how long: one class for each aim.

A policy sees the queue and answers with shares of a period; the simulator cuts them into slices. Long queues are not given
to linear programs but to prices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tonnage.allocate.linear import Promises, Shares, most_even, most_valuable
from tonnage.allocate.priced import most_valuable_whole
from tonnage.allocate.queue import Columns, Queue
from tonnage.allocate.rounding import rounded
from tonnage.allocate.speeds import Floats, Ints

_LONG = 400  # tasks; what is longer is not for linear programs
_MANY_JOBS = 2000  # in a trace: a linear program at each event would take too long
_LONG_SECONDS = 300.0  # between decisions on long queues
_CROWD = 4.0  # where all GPUs are wanted so many times, decisions become rarer
_RAREST = 12.0  # times as rare as usual
_LEAST_SECONDS = 10.0  # who needs less counts as needing so much: solvers need numbers of like size
_REVISED = 0.05  # of a plan for all that is left must be played before it is made anew
_REVISED_SECONDS = 60.0
_DAY_SECONDS = 86400.0
_RESTARTS = 10.0  # a slice lasts at least so many restarts
_NEW_SECONDS = 600.0  # of service, which all count as having had
_SHARPNESS = 0.8  # how far short tasks come first in the greatest crowd: wholly at one
_PATIENCE = 0.3  # the power of the slowdown that counts


def longest_exact_queue(jobs: int) -> int:
    """Tasks that linear programs look at, in a trace of so many jobs."""
    return _LONG if jobs <= _MANY_JOBS else 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decision:
    """Shares of so many seconds. Unless `sliced`, the whole period looks like its first slice."""

    shares: Shares
    seconds: float
    sliced: bool = False
    wide_first: bool = False  # in slices: gangs that fill a type
    least_seconds: float = 0.0  # until the next decision

    def least_part(self, restart_seconds: float) -> float:
        """Of the period, for a slice: what restarting costs stays small."""
        return min(1.0, _RESTARTS * restart_seconds / self.seconds) if self.sliced else 1.0


class Policy(Protocol):
    def value(self, queue: Queue) -> Floats:
        """What a step of each task is worth; GPUs that become free between two decisions go by it."""
        ...

    def decide(self, queue: Queue, now_seconds: float, arrival_seconds: float) -> Decision:
        """At this time, with the last arrival at that."""
        ...


def _decide_whole(queue: Queue, value: Floats, seconds: float) -> Decision:
    """The longer all must wait, the less it matters when it is decided anew."""
    times_wanted = 1.0 / (1.0 - queue.crowding)
    least_seconds = _LONG_SECONDS * min(max(times_wanted / _CROWD, 1.0), _RAREST)
    return Decision(
        shares=most_valuable_whole(queue, value), seconds=max(seconds, least_seconds), least_seconds=least_seconds
    )


class Completion:
    """Least mean completion time: highest density first, as a linear program over types and pairs.

    The more GPUs are wanted beyond those that there are, the more short tasks come first; where all can have the GPUs that
    suit them, each second of a GPU counts alike, whoever gets it. All that is there must remain possible to finish within
    `tail` times the shortest time in which it could be finished, counted from the last arrival.
    """

    def __init__(
        self,
        *,
        tail: float = np.inf,
        patience: float = _PATIENCE,
        period_seconds: float = 1800.0,
        long: int = _LONG,
    ) -> None:
        self.tail, self.patience, self.period_seconds, self.long = tail, patience, period_seconds, long
        self._due_seconds = np.inf
        self._seen_seconds = -np.inf  # the last arrival when that was set

    def value(self, queue: Queue) -> Floats:
        """About one over the steps that are left in a crowd, one over the best speed without; more for those who were
        slowed."""
        short = np.maximum(queue.least_seconds, _LEAST_SECONDS) ** (_SHARPNESS * queue.crowding)
        return np.asarray(queue.weights / queue.best_speeds / short * queue.slowdowns**self.patience)

    def decide(self, queue: Queue, now_seconds: float, arrival_seconds: float) -> Decision:
        if queue.size > self.long:
            return _decide_whole(queue, self.value(queue), self.period_seconds)
        value, promises = self.value(queue), self._promises(queue, now_seconds, arrival_seconds)
        shares = most_valuable(queue, value, promises)
        if promises is None:  # rounding knows what columns are worth, not what was promised
            shares = rounded(queue, value, shares)
        return Decision(shares=shares, seconds=self.period_seconds)

    def _promises(self, queue: Queue, now_seconds: float, arrival_seconds: float) -> Promises | None:
        if np.isinf(self.tail):
            return None
        if arrival_seconds != self._seen_seconds:
            self._due_seconds = now_seconds + self.tail / most_even(queue, 1.0 / queue.left_steps).value
            self._seen_seconds = arrival_seconds
        later = self._due_seconds - now_seconds - self.period_seconds
        if later <= 0:
            return None
        seconds = np.array([self.period_seconds, later])
        return Promises(period_seconds=seconds, last_periods=np.ones(queue.size, dtype=np.int64))


class Makespan:
    """All done as early as possible: everything gets the speed at which all end together."""

    def __init__(self, *, long: int = _LONG) -> None:
        self.long = long

    def value(self, queue: Queue) -> Floats:
        """Long tasks, and those on many GPUs, are the hardest to fit in later."""
        return np.asarray(queue.gpus * queue.least_seconds / queue.best_speeds)

    def decide(self, queue: Queue, now_seconds: float, arrival_seconds: float) -> Decision:  # noqa: ARG002
        if queue.size > self.long:
            urgency = queue.least_seconds / queue.least_seconds.max()
            return _decide_whole(queue, queue.gpus / queue.best_speeds * (1.0 + urgency), _LONG_SECONDS)
        shares = most_even(queue, 1.0 / queue.left_steps)
        seconds = 1.0 / shares.value
        least_seconds = max(_REVISED * seconds, _REVISED_SECONDS)
        return Decision(shares=shares, seconds=seconds, sliced=True, wide_first=True, least_seconds=least_seconds)


class Fairness:
    """The least that anyone gets is as much as possible: the speed beside that on an equal part of every type of GPU.

    In long queues those come first that have had least of it.
    """

    def __init__(self, *, period_seconds: float = 3600.0, long: int = _LONG) -> None:
        self.period_seconds, self.long = period_seconds, long

    def value(self, queue: Queue) -> Floats:
        """Who has had least comes first."""
        attained = queue.made_steps / self._equal_speeds(queue) / queue.weights
        return np.asarray(queue.gpus / self._equal_speeds(queue) * queue.weights / (attained + _NEW_SECONDS))

    def decide(self, queue: Queue, now_seconds: float, arrival_seconds: float) -> Decision:  # noqa: ARG002
        if queue.size > self.long:
            return _decide_whole(queue, self.value(queue), 2 * _LONG_SECONDS)
        shares = most_even(queue, queue.gpus / (self._equal_speeds(queue) * queue.weights), use_rest=True)
        return Decision(shares=shares, seconds=self.period_seconds, sliced=True)

    def _equal_speeds(self, queue: Queue) -> Floats:
        return np.asarray((queue.speeds * queue.capacity).sum(axis=1) / queue.capacity.sum())


class Fifo:
    """First come, first served, each alone on the type that suits it best of those with room; nobody is stopped.

    Who has no room makes all behind it wait. What schedulers do that know nothing, to compare with.
    """

    def value(self, queue: Queue) -> Floats:
        """Nothing fills free GPUs between decisions."""
        return np.zeros(queue.size)

    def decide(self, queue: Queue, now_seconds: float, arrival_seconds: float) -> Decision:  # noqa: ARG002
        types = queue.places.copy()
        free = queue.capacity - np.bincount(types[types >= 0], queue.gpus[types >= 0], len(queue.capacity)).astype(int)
        for task in np.flatnonzero(types < 0):
            speeds = np.where(queue.gpus[task] <= free, queue.table.alone[queue.classes[task]], 0.0)
            if not speeds.any():
                break
            types[task] = speeds.argmax()
            free[types[task]] -= queue.gpus[task]
        return Decision(shares=_whole(queue, types), seconds=_DAY_SECONDS)


def _whole(queue: Queue, types: Ints) -> Shares:
    """Each task alone on its type, for the whole period."""
    tasks = np.flatnonzero(types >= 0)
    columns = Columns(
        types=types[tasks],
        firsts=tasks,
        seconds=np.full(len(tasks), -1),
        first_speeds=queue.speeds[tasks, types[tasks]],
        second_speeds=np.zeros(len(tasks)),
        gpus=queue.gpus[tasks],
    )
    nothing = np.zeros(len(queue.capacity))
    return Shares(
        columns=columns, shares=np.ones(len(tasks)), value=0.0, type_prices=nothing, task_prices=np.zeros(queue.size)
    )

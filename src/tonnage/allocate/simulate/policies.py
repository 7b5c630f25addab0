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
from tonnage.allocate.queue import Queue
from tonnage.allocate.speeds import Floats

_LONG = 200  # tasks; what is longer is not for linear programs
_LONG_SECONDS = 300.0  # between decisions on long queues
_RESTARTS = 10.0  # a slice lasts at least so many restarts
_NEW_SECONDS = (
    600.0  # of service, which all are believed to have had: who has had little is not preferred without bounds
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decision:
    """Shares of so many seconds. Unless `sliced`, the whole period looks like its first slice."""

    shares: Shares
    seconds: float
    sliced: bool = False
    replan: bool = True  # when a task ends, rather than play on
    least_seconds: float = 0.0  # until the next decision

    def least_part(self, restart_seconds: float) -> float:
        """Of the period, for a slice: what restarting costs stays small."""
        return min(1.0, _RESTARTS * restart_seconds / self.seconds) if self.sliced else 1.0


class Policy(Protocol):
    def value(self, queue: Queue) -> Floats:
        """What a step of each task is worth; GPUs that become free between two decisions go by it."""
        ...

    def decide(self, queue: Queue, since_arrival_seconds: float) -> Decision: ...


def _decide_whole(queue: Queue, value: Floats, seconds: float) -> Decision:
    return Decision(shares=most_valuable_whole(queue, value), seconds=seconds, least_seconds=_LONG_SECONDS)


class Completion:
    """Least mean completion time: highest density first, as a linear program over types and pairs.

    A step of a task is worth one over the steps that are left, times the seconds that it needs to the power of one less
    `sharpness`: long tasks wait, but not for ever. All that is there must remain possible to finish within `tail` times the
    shortest time in which it could be finished, counted from the last arrival.
    """

    def __init__(
        self, *, tail: float = 1.2, sharpness: float = 0.7, period_seconds: float = 1800.0, long: int = _LONG
    ) -> None:
        self.tail, self.sharpness, self.period_seconds, self.long = tail, sharpness, period_seconds, long
        self._due_in = np.inf  # seconds from the last arrival

    def value(self, queue: Queue) -> Floats:
        return queue.weights / queue.left_steps * queue.least_seconds ** (1.0 - self.sharpness)

    def decide(self, queue: Queue, since_arrival_seconds: float) -> Decision:
        if queue.size > self.long:
            return _decide_whole(queue, self.value(queue), self.period_seconds)
        shares = most_valuable(queue, self.value(queue), self._promises(queue, since_arrival_seconds))
        return Decision(shares=shares, seconds=self.period_seconds)

    def _promises(self, queue: Queue, since_arrival_seconds: float) -> Promises | None:
        if np.isinf(self.tail):
            return None
        if since_arrival_seconds == 0.0:
            self._due_in = self.tail / most_even(queue, 1.0 / queue.left_steps).value
        later = self._due_in - since_arrival_seconds - self.period_seconds
        if later <= 0:
            return None
        seconds = np.array([self.period_seconds, later])
        return Promises(period_seconds=seconds, last_periods=np.ones(queue.size, dtype=np.int64))


class Makespan:
    """All done as early as possible: everything gets the speed at which all end together."""

    def value(self, queue: Queue) -> Floats:
        return queue.weights / queue.best_speeds

    def decide(self, queue: Queue, since_arrival_seconds: float) -> Decision:  # noqa: ARG002
        if queue.size > _LONG:
            urgency = queue.least_seconds / queue.least_seconds.max()
            return _decide_whole(queue, queue.gpus / queue.best_speeds * (1.0 + urgency), _LONG_SECONDS)
        shares = most_even(queue, 1.0 / queue.left_steps)
        return Decision(shares=shares, seconds=1.0 / shares.value, sliced=True, replan=False)


class Fairness:
    """The least that anyone gets is as much as possible: the speed beside that on an equal part of every type of GPU.

    In long queues those come first that have had least of it.
    """

    def __init__(self, *, period_seconds: float = 3600.0) -> None:
        self.period_seconds = period_seconds

    def value(self, queue: Queue) -> Floats:
        """Who has had least comes first."""
        attained = queue.made_steps / self._equal_speeds(queue) / queue.weights
        return np.asarray(queue.gpus / self._equal_speeds(queue) * queue.weights / (attained + _NEW_SECONDS))

    def decide(self, queue: Queue, since_arrival_seconds: float) -> Decision:  # noqa: ARG002
        if queue.size > _LONG:
            return _decide_whole(queue, self.value(queue), 2 * _LONG_SECONDS)
        shares = most_even(queue, queue.gpus / (self._equal_speeds(queue) * queue.weights), use_rest=True)
        return Decision(shares=shares, seconds=self.period_seconds, sliced=True)

    def _equal_speeds(self, queue: Queue) -> Floats:
        return np.asarray((queue.speeds * queue.capacity).sum(axis=1) / queue.capacity.sum())

"""Bounds on when tasks can end, from a linear program over intervals of time.

In each interval, each model of GPU gives at most its GPUs' time. A task's work is spread over models and intervals; the
mean moment of its work is at least that of the intervals' beginnings, and it ends at least half of its own length later.
The program relaxes every plan: tasks may be cut, moved and spread over any number of GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tonnage.allocate.linear import Answer, LinearRows, solve_rows
from tonnage.allocate.problem import Problem, Task
from tonnage.allocate.speeds import Floats


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """No plan is below the value; one more GPU of each model would take its price off that, at most."""

    value: float
    prices: Floats  # by model

    def shifted(self, off: float, scale: float) -> Bound:
        """Of (value - off) / scale."""
        return Bound((self.value - off) / scale, self.prices / scale)


_INTERVALS = 32
_MOST_VARIABLES = 60_000


def can_be_bounded(problem: Problem, tasks: Sequence[Task]) -> bool:
    return len(tasks) * len(problem.models) * _INTERVALS <= _MOST_VARIABLES


class Intervals:
    """The rows that every objective shares. Columns: the part of a task that is done on a model in an interval."""

    def __init__(
        self,
        problem: Problem,
        tasks: Sequence[Task],
        gpu_seconds: Callable[[Task, str], float],
        horizon: float,
    ) -> None:
        self.tasks, self.horizon, self.models = tasks, horizon, len(problem.models)
        self.rows = LinearRows()
        models = problem.models
        seconds = np.array([[gpu_seconds(t, g) * t.gpus if g in t.profiles else np.inf for g in models] for t in tasks])
        shortest = min(task.least_seconds for task in tasks)
        # Behind the horizon there is no limit, so that it may be anything.
        edges = np.concatenate(
            [[0.0], np.geomspace(min(shortest / 2, horizon / 2), horizon, _INTERVALS - 1), [1e6 * horizon]]
        )
        lengths, begins = np.diff(edges), edges[:-1]
        self.lengths = lengths
        release = np.array([task.release_seconds for task in tasks])
        usable = np.isfinite(seconds)[:, :, None] & (edges[1:] > release[:, None])[:, None, :]
        self.task, model, interval = np.nonzero(usable)
        self.begin = np.maximum(begins[interval], release[self.task])
        self.count = len(self.task)
        numbers = np.arange(self.count)
        size = len(tasks)
        # Each task is done as a whole: at least, as nobody gains by doing more.
        self.rows.add(self.task, numbers, -np.ones(self.count))
        capacity = np.array([len(problem.devices_of(gpu)) for gpu in models])
        self.rows.add(size + model * len(lengths) + interval, numbers, seconds[self.task, model])
        self.limits = np.concatenate([-np.ones(size), (capacity[:, None] * lengths).ravel()])
        self.half = np.array([task.least_seconds / 2 for task in tasks])

    def least_total(self, weight: Floats) -> Bound:
        """Of the weighted ends."""
        answer = solve_rows(weight[self.task] * self.begin, self.rows, self.limits)
        return Bound(float(answer.least + (weight * self.half).sum()), self._prices(answer))

    def least_beyond(self, due: Floats, weight: Floats, *, sum_of_all: bool) -> Bound:
        """Of what the ends are beyond `due`, times the weights: the sum, or the worst."""
        size = len(self.tasks)
        numbers = np.arange(self.count)
        first = len(self.limits)
        extra = size if sum_of_all else 1
        self.rows.add(first + self.task, numbers, weight[self.task] * self.begin)
        self.rows.add(
            first + np.arange(size),
            self.count + (np.arange(size) if sum_of_all else np.zeros(size, int)),
            -np.ones(size),
        )
        limits = np.concatenate([self.limits, weight * (due - self.half)])
        costs = np.concatenate([np.zeros(self.count), np.ones(extra)])
        answer = solve_rows(costs, self.rows, limits)
        return Bound(answer.least, self._prices(answer))

    def _prices(self, answer: Answer) -> Floats:
        """One more GPU of a model gives as much time in each interval as that lasts."""
        of_time = answer.prices[len(self.tasks) :][: self.models * len(self.lengths)].reshape(self.models, -1)
        return np.asarray(of_time @ self.lengths)

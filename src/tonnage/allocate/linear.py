"""Linear programs over columns: which part of a period each column runs.

Pairs are far too many to list. Only those that would pay at the prices of the last solution are added, until none is left.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tonnage.allocate.queue import Columns, Queue, alone_columns, pair_columns
from tonnage.allocate.speeds import Floats, Ints
from tonnage.errors import MissingDependency, TonnageError

_MOST_ROUNDS = 12  # of adding pairs
_LATE = 1e3  # what it costs to leave a task undone, in the most that one column can bring
_WIDEST = 1e5  # weighted speeds further apart count as so far: solvers need numbers of like size
_TINY = 1e-4  # of the longest task
_SOON = 1e4  # who needs less of a period than one over this counts as needing so much
_REST = 0.01  # of the least speed may be given up for the mean of all


class NotSolved(TonnageError):
    """The numbers of a linear program are too far apart for the solver."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shares:
    """Parts of a period, and what the solution would pay for one more of anything."""

    columns: Columns
    shares: Floats  # by column
    value: float
    type_prices: Floats  # of one more GPU of each type
    task_prices: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Promises:
    """Work that must remain possible: each task ends within the periods up to its own.

    The first period is the one that is decided; those that follow only have to leave room.
    """

    period_seconds: Floats
    last_periods: Ints  # of each task


def most_valuable(queue: Queue, value: Floats, promises: Promises | None = None) -> Shares:
    """The shares that bring most: `value` for each step that a task makes in the first period."""
    scale = float((queue.speeds * value[:, None]).max())
    program = _Valuable(queue, value / scale, promises)
    answer = _with_pairs(program)
    columns = program.columns[0]
    return Shares(
        columns=columns,
        shares=np.maximum(answer.x[: columns.size], 0.0),
        value=-answer.least * scale,
        type_prices=program.type_prices(answer, 0) * scale,
        task_prices=program.task_prices(answer, 0) * scale,
    )


def most_even(queue: Queue, weight: Floats, *, use_rest: bool = False) -> Shares:
    """The shares whose least weighted speed is greatest; that is their `value`.

    With weights of one over the steps that are left, all end together and as early as possible: the value is one over that
    time. With `use_rest`, GPUs that do not help the slowest make others faster.
    """
    fastest = weight * queue.best_speeds
    scale = float(fastest.min())
    program = _Even(queue, weight / scale * np.minimum(1.0, _WIDEST * scale / fastest))
    answer = _with_pairs(program)
    if use_rest:
        program.rest = _REST * float(answer.x[-1]) / queue.size / queue.best_speeds
        answer = _with_pairs(program)
    columns = program.columns[0]
    return Shares(
        columns=columns,
        shares=np.maximum(answer.x[: columns.size], 0.0),
        value=float(answer.x[-1]) * scale,
        type_prices=program.type_prices(answer, 0) * scale,
        task_prices=program.task_prices(answer, 0) * scale,
    )


def ending_together(queue: Queue) -> Shares:
    """All of it done at once, whatever may be cut and moved, and as early as possible: one over the value is a bound of
    every schedule.

    Tiny tasks are left out. Fewer are not longer, and with numbers of like size no weight is bent.
    """
    least = queue.least_seconds
    which = np.flatnonzero(least >= _TINY * least.max())
    long = queue.chosen(which)
    answer = most_even(long, 1.0 / long.left_steps)
    prices = np.zeros(queue.size)
    prices[which] = answer.task_prices
    return replace(answer, columns=answer.columns.of_tasks(which), task_prices=prices)


@dataclass(slots=True)
class LinearRows:
    """A matrix in the making, by entries."""

    rows: list[Ints] = field(default_factory=list)
    columns: list[Ints] = field(default_factory=list)
    entries: list[Floats] = field(default_factory=list)

    def add(self, rows: Ints, columns: Ints, entries: Floats) -> None:
        self.rows.append(rows)
        self.columns.append(columns)
        self.entries.append(entries)

    def add_speeds(self, begin: int, columns: Columns, numbers: Ints, factor: Floats) -> None:
        """Rows of tasks, with the speed of each in each column times its factor."""
        second = columns.seconds >= 0
        self.add(begin + columns.firsts, numbers, columns.first_speeds * factor[columns.firsts])
        partners = columns.seconds[second]
        self.add(begin + partners, numbers[second], columns.second_speeds[second] * factor[partners])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    x: Floats
    least: float
    prices: Floats  # of each row, at least 0


class _Program(ABC):
    """Periods with columns of their own. In each, a row for the time of each task and one for the GPUs of each type; then
    one for the speed of each task, which subclasses fill."""

    def __init__(self, queue: Queue, periods: int) -> None:
        self.queue = queue
        self.columns = [alone_columns(queue) for _ in range(periods)]
        self.block = queue.size + len(queue.table.types)
        self.speed_row = periods * self.block

    def task_prices(self, answer: Answer, period: int) -> Floats:
        return answer.prices[period * self.block :][: self.queue.size]

    def type_prices(self, answer: Answer, period: int) -> Floats:
        return answer.prices[period * self.block + self.queue.size : (period + 1) * self.block]

    def speed_prices(self, answer: Answer) -> Floats:
        return answer.prices[self.speed_row :]

    def limits(self) -> Floats:
        return np.tile(np.concatenate([np.ones(self.queue.size), self.queue.capacity]), len(self.columns))

    def begin(self, rows: LinearRows) -> list[Ints]:
        """Fills the rows of time and GPUs; the numbers of each period's columns."""
        numbers, count = [], 0
        for period, columns in enumerate(self.columns):
            mine = count + np.arange(columns.size)
            second, top = columns.seconds >= 0, period * self.block
            rows.add(top + columns.firsts, mine, np.ones(columns.size))
            rows.add(top + columns.seconds[second], mine[second], np.ones(int(second.sum())))
            rows.add(top + self.queue.size + columns.types, mine, columns.gpus.astype(float))
            numbers.append(mine)
            count += columns.size
        return numbers

    @abstractmethod
    def gain(self, answer: Answer, period: int) -> Floats:
        """What a step of each task is worth in a period."""

    @abstractmethod
    def solve(self) -> Answer:
        """With the columns that there are so far."""

    def add_pairs(self, answer: Answer) -> bool:
        found = [
            pair_columns(
                self.queue,
                self.gain(answer, period),
                self.task_prices(answer, period),
                self.type_prices(answer, period),
                most=4 * self.queue.size,
            )
            for period in range(len(self.columns))
        ]
        self.columns = [old.joined(new) for old, new in zip(self.columns, found, strict=True)]
        return any(new.size for new in found)


class _Valuable(_Program):
    def __init__(self, queue: Queue, value: Floats, promises: Promises | None) -> None:
        super().__init__(queue, len(promises.period_seconds) if promises else 1)
        self.value, self.promises = value, promises

    def part(self, period: int) -> Floats:
        """Of each task's work that one step a second does in this period."""
        assert self.promises is not None
        counts = (period <= self.promises.last_periods) * self.promises.period_seconds[period]
        return np.asarray(np.minimum(counts / self.queue.left_steps, _SOON / self.queue.best_speeds))

    def gain(self, answer: Answer, period: int) -> Floats:
        worth = self.value if period == 0 else np.zeros(self.queue.size)
        if self.promises is not None:
            worth = worth + self.part(period) * self.speed_prices(answer)
        return worth

    def solve(self) -> Answer:
        rows, first, size = LinearRows(), self.columns[0], self.queue.size
        numbers = self.begin(rows)
        count = sum(len(each) for each in numbers)
        worth = first.worth(self.value)
        if self.promises is None:
            return solve_rows(-worth, rows, self.limits())
        for period, columns in enumerate(self.columns):
            rows.add_speeds(self.speed_row, columns, numbers[period], -self.part(period))
        rows.add(self.speed_row + np.arange(size), count + np.arange(size), -np.ones(size))  # what is left undone
        costs = np.concatenate([-worth, np.zeros(count - first.size), np.full(size, _LATE)])
        return solve_rows(costs, rows, np.concatenate([self.limits(), -np.ones(size)]))


class _Even(_Program):
    def __init__(self, queue: Queue, weight: Floats) -> None:
        super().__init__(queue, 1)
        self.weight = weight
        self.rest = np.zeros(queue.size)  # what a step of each task is worth beside the least speed

    def gain(self, answer: Answer, period: int) -> Floats:  # noqa: ARG002  (there is but one)
        return np.asarray(self.weight * self.speed_prices(answer) + self.rest)

    def solve(self) -> Answer:
        rows, columns, size = LinearRows(), self.columns[0], self.queue.size
        (numbers,) = self.begin(rows)
        rows.add_speeds(self.speed_row, columns, numbers, -self.weight)
        rows.add(self.speed_row + np.arange(size), np.full(size, columns.size), np.ones(size))  # the least speed
        return solve_rows(
            np.append(-columns.worth(self.rest), -1.0), rows, np.concatenate([self.limits(), np.zeros(size)])
        )


def _with_pairs(program: _Program) -> Answer:
    answer = program.solve()
    if not program.queue.table.paired.any():
        return answer
    for _ in range(_MOST_ROUNDS):
        if not program.add_pairs(answer):
            break
        answer = program.solve()
    return answer


def load_solver() -> tuple[Any, Any]:
    """SciPy's solver and matrices; loading them takes longer than most programs."""
    try:
        from scipy.optimize import linprog
        from scipy.sparse import csr_matrix
    except ModuleNotFoundError:
        raise MissingDependency("allocation needs the package scipy", "pip install 'tonnage[allocate]'") from None
    return linprog, csr_matrix


def solve_rows(costs: Floats, rows: LinearRows, limits: Floats) -> Answer:
    """The least cost with matrix x <= limits and x >= 0."""
    linprog, csr_matrix = load_solver()
    where = (np.concatenate(rows.rows), np.concatenate(rows.columns))
    matrix = csr_matrix((np.concatenate(rows.entries), where), shape=(len(limits), len(costs)))
    answer = linprog(costs, A_ub=matrix, b_ub=limits, method="highs")
    if answer.x is None:
        raise NotSolved(f"the linear program was not solved: {answer.message}")
    return Answer(x=answer.x, least=float(answer.fun), prices=np.maximum(-answer.ineqlin.marginals, 0.0))

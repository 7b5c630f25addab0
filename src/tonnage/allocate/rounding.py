"""From shares of a period to whole columns for all of it.

A gang that fills a type may have most of a period in a linear program beside a task that has all of it, and still be second
each time that somebody must be first. So the order of the shares is only where the search begins.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tonnage.allocate.linear import Shares
from tonnage.allocate.queue import Columns, Queue
from tonnage.allocate.speeds import Floats, Ints

_NOTHING = 1e-6  # of a share
_BETTER = 1e-9
_MOST_FORCED = 6  # columns that are set before the others


def rounded(queue: Queue, value: Floats, shares: Shares) -> Shares:
    """Each column wholly or not at all, worth as much as is found by setting gangs and parted columns first."""
    search = _Search(shares.columns, shares.columns.worth(value), queue.capacity)
    shared = in_order(shares.columns, shares.shares, queue.size)
    alone = shares.columns.seconds < 0
    others = np.flatnonzero((shares.shares <= _NOTHING) & alone)
    search.begin([*shared.tolist(), *others[np.argsort(-search.density[others], kind="stable")].tolist()])
    parted = (shares.shares > _NOTHING) & (shares.shares < 1.0 - _NOTHING)
    search.improve(np.flatnonzero(parted | ((shares.columns.gpus > 1) & alone)).tolist())
    whole = np.zeros(shares.columns.size)
    whole[search.best] = 1.0
    return replace(shares, shares=whole, value=search.value)


def in_order(columns: Columns, shares: Floats, tasks: int) -> Ints:
    """Those with a share: first whose tasks have the least time to lose, then gangs."""
    usable = np.flatnonzero(shares > _NOTHING)
    urgent = np.round(urgency(columns, shares, tasks)[usable], 4)
    return usable[np.lexsort((-shares[usable], -columns.gpus[usable], -urgent))]


def urgency(columns: Columns, shares: Floats, tasks: int) -> Floats:
    """Of each column: the part of the period that its tasks, or one of the two, still have to run."""
    owed = columns.by_task(shares, tasks)
    partner = np.where(columns.seconds >= 0, owed[columns.seconds], 0.0)
    return np.asarray(np.maximum(owed[columns.firsts], partner))


Rows = list[tuple[int, int, int, int]]  # of columns: type, GPUs, first and second task


def rows_of(columns: Columns) -> Rows:
    fields = (columns.types, columns.gpus, columns.firsts, columns.seconds)
    return list(zip(*(each.tolist() for each in fields), strict=True))


def place(rows: Rows, order: list[int], capacity: Ints) -> list[int]:
    """Column after column, as long as GPUs are free and no task runs twice."""
    free, left = capacity.tolist(), int(capacity.sum())
    running: set[int] = set()
    chosen: list[int] = []
    for number in order:
        kind, gpus, first, second = rows[number]
        if gpus <= free[kind] and first not in running and second not in running:
            free[kind] -= gpus
            left -= gpus
            running.update((first, second) if second >= 0 else (first,))
            chosen.append(number)
            if not left:
                break
    return chosen


class _Search:
    def __init__(self, columns: Columns, worth: Floats, capacity: Ints) -> None:
        self.worth, self.density, self.capacity = worth, worth / columns.gpus, capacity
        self.rows = rows_of(columns)
        self.order: list[int] = []
        self.best: list[int] = []
        self.value = -np.inf

    def begin(self, order: list[int]) -> None:
        self._try(order)
        self.order = order

    def improve(self, candidates: list[int]) -> None:
        """Sets the candidate first that brings most, then another one before it, while that helps."""
        for _ in range(_MOST_FORCED):
            order = self.order
            better = [number for number in candidates if self._try([number, *order])]
            if not better:
                return
            self.order = [better[-1], *order]

    def _try(self, order: list[int]) -> bool:
        chosen = place(self.rows, order, self.capacity)
        value = float(self.worth[chosen].sum())
        if value <= self.value * (1.0 + _BETTER):
            return False
        self.best, self.value = chosen, value
        return True

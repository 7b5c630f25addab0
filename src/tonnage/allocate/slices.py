"""From shares of a period to slices of it: in each slice whole tasks run on whole GPUs.

A greedy version of what Lawler and Labetoulle (1978) showed for open shops: a slice holds every task and every type of GPU
that has no time to lose, and lasts until another one has none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tonnage.allocate.linear import Shares
from tonnage.allocate.rounding import in_order, place, rows_of, urgency
from tonnage.allocate.speeds import Floats, Ints

_NOTHING = 1e-6
_TIGHT = 1e-4  # of a period
_MOST_SLICES = 200


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Slice:
    """So much of the period, these columns."""

    part: float
    columns: Ints


def cut(
    shares: Shares, capacity: Ints, tasks: int, least_part: float = 0.0, *, wide_first: bool = False
) -> list[Slice]:
    """Slices that together give each column about its share. What would need shorter ones than allowed is left out.

    With `wide_first`, gangs that leave others no half of a type do not wait until they must run: later they find no room.
    That costs the mean of all for an earlier end.
    """
    cutter = _Cutter(shares, capacity, tasks, wide_first)
    slices: list[Slice] = []
    while cutter.left > _NOTHING:
        chosen = cutter.choose()
        part = max(cutter.length(chosen), least_part)
        if cutter.left - part < least_part or len(slices) == _MOST_SLICES - 1:
            part = cutter.left
        slices.append(Slice(part=part, columns=chosen))
        cutter.take(chosen, part)
    return slices


class _Cutter:
    def __init__(self, shares: Shares, capacity: Ints, tasks: int, wide_first: bool) -> None:
        self.columns, self.capacity, self.tasks = shares.columns, capacity, tasks
        self.wide = wide_first & (2 * self.columns.gpus > capacity[self.columns.types])
        self.rows = rows_of(shares.columns)
        self.rest = shares.shares.copy()
        self.left = 1.0

    def owed(self) -> Floats:
        """Of each task: the part of the period in which it still has to run."""
        return self.columns.by_task(self.rest, self.tasks)

    def choose(self) -> Ints:
        """First who has no time to lose, then wide gangs, then who has least, as long as GPUs are free."""
        order = in_order(self.columns, self.rest, self.tasks)
        late = urgency(self.columns, self.rest, self.tasks)[order] >= self.left - _TIGHT
        order = order[np.lexsort((~self.wide[order], ~late))]
        return np.array(place(self.rows, order.tolist(), self.capacity), dtype=np.int64)

    def length(self, chosen: Ints) -> float:
        """Until one of these has had its share, or one that waits has no time to lose."""
        if not len(chosen):
            return self.left
        owed = self.owed()
        waiting = np.ones(self.tasks, dtype=bool)
        waiting[self.columns.firsts[chosen]] = False
        second = self.columns.seconds[chosen]
        waiting[second[second >= 0]] = False
        slack = (self.left - owed)[waiting & (owed > _NOTHING)]
        slack = slack[slack > _NOTHING]
        return float(min(self.left, self.rest[chosen].min(), slack.min() if len(slack) else np.inf))

    def take(self, chosen: Ints, part: float) -> None:
        self.rest[chosen] = np.maximum(self.rest[chosen] - part, 0.0)
        self.left -= part

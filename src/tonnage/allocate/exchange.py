"""Better lanes: tasks move to other GPUs, change places with others, or come earlier or later on their own."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

import numpy as np

from tonnage.allocate.lanes import Lanes
from tonnage.allocate.objectives import Objective
from tonnage.allocate.problem import Task

_AT_ONCE = 4096  # random numbers
_PATIENCE = 400  # changes of each lane without gain
_KICKS, _KICKED = 100, 6  # times, and changes at most each time
_REORDER, _MOVE = 0.15, 0.4  # kinds of changes: below the first, below the second, and the rest
_WORST = 0.6  # of the changes begin with the worst lane, where that is what counts

Lane = tuple[int, list[Task]]


class Exchange:
    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes
        self._source = np.random.default_rng(0)
        self._numbers: list[float] = []

    def run(self, enough: float, keep_going: Callable[[], bool]) -> None:
        """Until it is good enough or nobody wants to go on, with a few tries to leave what cannot be bettered."""
        self._climb(enough, keep_going)
        for _ in range(_KICKS):
            if self.lanes.total <= enough or not keep_going():
                break
            best, orders, costs = self.lanes.total, list(self.lanes.orders), list(self.lanes.costs)
            for _ in range(1 + self._below(_KICKED)):
                self._set(change := self._change(), [self.lanes.cost(*each) for each in change])
            self._climb(enough, keep_going)
            if self.lanes.total > best:
                self.lanes.orders, self.lanes.costs = orders, costs

    def _climb(self, enough: float, keep_going: Callable[[], bool]) -> None:
        """Until nothing better is found for long."""
        misses, patience = 0, _PATIENCE * len(self.lanes.orders)
        while misses < patience and (misses or self.lanes.total > enough) and keep_going():
            misses = 0 if self._try() else misses + 1

    def _try(self) -> bool:
        """One change. Those that are no worse are kept; whether it is better."""
        changed = self._change()
        if not changed:
            return False
        lanes = self.lanes
        before = [lanes.costs[number] for number, _ in changed]
        after = [lanes.cost(number, order) for number, order in changed]
        old, new = self._judged(before), self._judged(after)
        if new <= old:
            self._set(changed, after)
        return new < old

    def _set(self, changed: list[Lane], costs: list[float]) -> None:
        for (number, order), cost in zip(changed, costs, strict=True):
            self.lanes.set(number, order, cost)

    def _judged(self, costs: list[float]) -> tuple[float, float]:
        return (max(costs), sum(costs)) if self.lanes.is_worst_of_all else (sum(costs), 0.0)

    def _change(self) -> list[Lane]:
        orders = self.lanes.orders
        source = self._lane()
        order = orders[source]
        if not order:
            return []
        place, kind = self._below(len(order)), self._chance()
        task, rest = order[place], order[:place] + order[place + 1 :]
        if kind < _REORDER:
            return [(source, _with(rest, task, self._below(len(order))))] if rest else []
        target = self._target(task)
        if target == source:
            return []
        if kind < _MOVE:
            return [(source, rest), (target, self._joined(target, orders[target], task))]
        return self._swap(source, rest, place, target, task)

    def _swap(self, source: int, rest: list[Task], place: int, target: int, task: Task) -> list[Lane]:
        there = self.lanes.orders[target]
        if not there:
            return []
        other_place = self._below(len(there))
        other, others = there[other_place], there[:other_place] + there[other_place + 1 :]
        if not self.lanes.may_have(other, source):
            return []
        if self._chance() < 0.5:
            return [(source, _with(rest, other, place)), (target, _with(others, task, other_place))]
        return [(source, self._joined(source, rest, other)), (target, self._joined(target, others, task))]

    def _joined(self, lane: int, order: list[Task], task: Task) -> list[Task]:
        """Where it belongs if short tasks that count much come first, or anywhere."""
        if self.lanes.objective is Objective.COMPLETION and self._chance() < 0.7:
            gpu = self.lanes.problem.devices[lane].gpu
            keys = [each.seconds_on(gpu) / each.weight for each in order]
            return _with(order, task, bisect_left(keys, task.seconds_on(gpu) / task.weight))
        return _with(order, task, self._below(len(order) + 1))

    def _lane(self) -> int:
        if self.lanes.is_worst_of_all and self._chance() < _WORST:
            return max(range(len(self.lanes.costs)), key=self.lanes.costs.__getitem__)
        return self._below(len(self.lanes.orders))

    def _target(self, task: Task) -> int:
        """Of two lanes that are allowed the one that costs less."""
        allowed = self.lanes.allowed[task.name]
        one, other = allowed[self._below(len(allowed))], allowed[self._below(len(allowed))]
        return min(one, other, key=self.lanes.costs.__getitem__) if self.lanes.is_worst_of_all else one

    def _chance(self) -> float:
        if not self._numbers:
            self._numbers = self._source.random(_AT_ONCE).tolist()
        return self._numbers.pop()

    def _below(self, limit: int) -> int:
        return int(self._chance() * limit)


def _with(order: list[Task], task: Task, place: int) -> list[Task]:
    return [*order[:place], task, *order[place:]]

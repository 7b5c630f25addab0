"""A bound on loads that counts what must be moved, for networks whose sets cannot all be listed.

Suppose that no load is above a cap. Then so many devices of each class (a state) hold at most so much work, and those that
are left at least the rest. So before and after each device in a chain stand sets that must have some operations, those
with too much work after them for the devices that are left, and must not have others, those with too much work before
them. Among all sets in between, a minimum cut has the least to move: what the device makes itself, as none before it can,
leaves it, and what it alone can read comes in. If that takes longer than the cap, no chain goes from the one state to the
other; if no way is left through the states, the cap is too low.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from tonnage.split.prices import Prices
from tonnage.split.problem import Floats, Problem

_STEPS = 8  # halvings of the interval between what is proven and what is possible
_MOST_GROUPS = 4000
_ROOM = 1 << 30  # of the integers of a flow
_SLACK = 1 + 1e-9

State = tuple[int, ...]  # devices in use of each class


def cut_bound(problem: Problem, prices: Prices, low: float, high: float, keep_going: Callable[[], bool]) -> float:
    """A load between `low`, which is a bound, and `high` that no chain is below. Of chains without replicas."""
    if problem.size > _MOST_GROUPS or not _has_flows():
        return low
    cuts = _Cuts(problem, prices)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if not keep_going():
            break
        if cuts.allow(middle, keep_going):
            high = middle
        else:
            low = middle
    return low


def _has_flows() -> bool:
    try:
        import scipy.sparse.csgraph  # noqa: F401
    except ImportError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Window:
    """What the set at a boundary must have and must not have."""

    inside: Any  # by group
    outside: Any


class _Cuts:
    """The boundaries of one problem."""

    def __init__(self, problem: Problem, prices: Prices) -> None:
        self._problem, self._prices = problem, prices
        self._work = float(prices.of_group.sum())
        self._before, self._after = _work_around(problem, prices.of_group)  # of each group, itself included
        self._counts = [each.count for each in problem.classes]
        self._nets = [net for net in problem.nets if net.weight > 0]

    def allow(self, cap: float, keep_going: Callable[[], bool]) -> bool:
        """Whether there may be a chain of loads up to the cap; also if there was no time to find out."""
        reached: set[State] = {(0,) * len(self._counts)}
        for state in product(*(range(count + 1) for count in self._counts)):  # each after those that lead to it
            if state not in reached:
                continue
            if self._offered(state, cap) >= self._work or not keep_going():
                return True
            for index in range(len(state)):
                after = (*state[:index], state[index] + 1, *state[index + 1 :])
                is_new = after[index] <= self._counts[index] and after not in reached
                if is_new and self._can_pass(state, after, index, cap):
                    reached.add(after)
        return False

    def _offered(self, state: State, cap: float) -> float:
        """What these devices can do at most, at the prices."""
        return float(np.dot(self._prices.of_class, state)) * cap * _SLACK

    def _left(self, state: State, cap: float) -> float:
        return self._offered(tuple(np.subtract(self._counts, state)), cap)

    def _window(self, state: State, cap: float) -> _Window:
        inside, outside = self._after > self._left(state, cap), self._before > self._offered(state, cap)
        return _Window(inside, outside)

    def _can_pass(self, state: State, after: State, index: int, cap: float) -> bool:
        """Whether one more device of this class may do its part within the cap."""
        device = self._problem.classes[index]
        first, second = self._window(state, cap), self._window(after, cap)
        if (first.inside & first.outside).any() or (second.inside & second.outside).any():
            return False
        # What only this device can make, if it is there afterwards, leaves it for all readers that are not.
        leaving = [(net.members, net.weight) for net in self._nets if first.outside[net.members[0]]]
        if self._is_above(second, leaving, device.seconds_per_unit_out, cap):
            return False
        # What only this device can read, if it is not there before, comes in.
        coming = []
        for net in self._nets:
            readers = tuple(member for member in net.members[1:] if second.inside[member])
            if readers:
                coming.append(((net.members[0], *readers), net.weight))
        return not self._is_above(first, coming, device.seconds_per_unit, cap)

    def _is_above(self, window: _Window, nets: list[tuple[tuple[int, ...], float]], unit: float, cap: float) -> bool:
        """Whether the least of these nets that is open at any set of the window takes longer than the cap."""
        if unit <= 0 or not nets or not window.outside.any():
            return False
        limit = _ROOM // (len(nets) + 2)
        return _Flow(self._problem, window, limit).exceeds(nets, unit / (cap * _SLACK))


class _Flow:
    """Groups between what is inside and what is outside, as the nodes of a flow: 0 is the source, 1 the sink."""

    def __init__(self, problem: Problem, window: _Window, limit: int) -> None:
        self._limit = limit
        free = np.flatnonzero(~(window.inside | window.outside))
        self._node = np.where(window.inside, 0, 1)
        self._node[free] = np.arange(2, len(free) + 2)
        self._size = len(free) + 2
        self._edges: list[tuple[int, int, int]] = list(self._order(problem, free))

    def _order(self, problem: Problem, free: Any) -> Iterator[tuple[int, int, int]]:
        """A set has with each group all that lead to it."""
        for group in free:
            for leader in problem.leaders[group]:
                yield int(self._node[group]), int(self._node[leader]), _ROOM

    def exceeds(self, nets: list[tuple[tuple[int, ...], float]], seconds: float) -> bool:
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import maximum_flow

        sure = 0
        for members, weight in nets:
            nodes = {int(self._node[member]) for member in members[1:]}
            maker, size = int(self._node[members[0]]), min(int(weight * seconds * self._limit), self._limit + 1)
            if maker == 1 or nodes <= {0, maker}:
                continue
            if maker == 0 and 1 in nodes:
                sure += size
                continue
            self._edges.append((maker, self._size, size))
            self._edges += [(self._size, node, _ROOM) for node in nodes - {0, maker}]
            self._size += 1
        if sure > self._limit or not self._edges:
            return sure > self._limit
        edges: dict[tuple[int, int], int] = {}
        for source, target, size in self._edges:
            if source != target and target != 0 and source != 1:
                edges[source, target] = min(edges.get((source, target), 0) + size, _ROOM)
        rows, columns = np.array(list(edges), dtype=np.int32).reshape(-1, 2).T
        sizes = np.array(list(edges.values()), dtype=np.int32)
        graph = csr_array((sizes, (rows, columns)), shape=(self._size, self._size))
        return bool(sure + maximum_flow(graph, 0, 1).flow_value > self._limit)


def _work_around(problem: Problem, work: Floats) -> tuple[Floats, Floats]:
    """Of each group: the work of all that must come no later, and of all that must come no earlier."""
    size = problem.size
    reach = np.eye(size, dtype=bool)
    for group in reversed(range(size)):
        for follower in problem.followers[group]:
            reach[group] |= reach[follower]
    return np.asarray(work @ reach), np.asarray(reach @ work)

"""Tasks into slots of several places each, at least total cost, exactly: moves in cycles, until no cycle gains.

The graph has a node for each slot and one for free places, however many tasks there are.
"""

from __future__ import annotations

import numpy as np

from tonnage.allocate.speeds import Floats, Ints
from tonnage.errors import TonnageError

_ZERO = 1e-11  # of the largest cost: cycles that gain less are errors of rounding
_LOOK = 3  # steps of the shortest paths between looks for a cycle


class Slots:
    """An assignment in the making. `slots` says where each task is."""

    def __init__(self, costs: Floats, places: Ints, slots: Ints) -> None:
        self.costs, self.slots = costs, slots  # costs: task, slot; inf: not allowed
        self.free = places - np.bincount(slots, minlength=len(places))
        if (self.free < 0).any():
            raise TonnageError("a slot holds more tasks than it has places")
        self.zero = _ZERO * float(costs[np.isfinite(costs)].max(initial=1.0))
        size = len(places) + 1  # the last node: free places
        self.steps: Floats = np.full((size, size), np.inf)
        self.movers = np.full((size, size), -1)
        for slot in range(len(places)):
            self._look_at(slot)

    def _look_at(self, slot: int) -> None:
        """The cheapest moves out of a slot, and whether it has a free place."""
        tasks = np.flatnonzero(self.slots == slot)
        self.steps[slot, -1] = 0.0 if self.free[slot] > 0 else np.inf
        self.steps[-1, slot] = 0.0 if len(tasks) else np.inf
        if len(tasks):
            more = self.costs[tasks] - self.costs[tasks, slot][:, None]
            best = more.argmin(axis=0)
            self.steps[slot, :-1] = more[best, np.arange(len(best))]
            self.movers[slot, :-1] = tasks[best]
        else:
            self.steps[slot, :-1] = np.inf
        self.steps[slot, slot] = np.inf

    def solve(self) -> Floats:
        """Moves tasks until no cycle gains, which is the optimum of a flow (Klein, 1967).

        Returns the price of a place in each slot: every task is where it is cheapest, and free places cost nothing.
        """
        while True:
            distances, cycles = self._shortest()
            if not cycles:
                return np.asarray(np.maximum(distances[-1] - distances[:-1], 0.0))
            for cycle in cycles:
                self._move_around(cycle)

    def _shortest(self) -> tuple[Floats, list[list[int]]]:
        """Bellman and Ford from all nodes at once: distances, or cycles of negative length."""
        size = len(self.steps)
        distances, parents, nodes = np.zeros(size), np.full(size, -1), np.arange(size)
        for step in range(size + 1):
            through = distances[:, None] + self.steps
            nearest = through.argmin(axis=0)
            reached = through[nearest, nodes]
            closer = reached < distances - self.zero
            if not closer.any():
                break
            distances, parents = np.where(closer, reached, distances), np.where(closer, nearest, parents)
            if step % _LOOK == _LOOK - 1 or step == size:
                cycles = _cycles(parents)
                if cycles:
                    return distances, cycles
        return distances, []

    def _move_around(self, cycle: list[int]) -> None:
        """Each slot of the cycle gives its cheapest mover to the next."""
        outside = len(self.steps) - 1
        for here, there in zip(cycle, cycle[1:] + cycle[:1], strict=True):
            if here != outside and there != outside:
                self.slots[self.movers[here, there]] = there
            elif there == outside:
                self.free[here] -= 1
            else:
                self.free[there] += 1
        for slot in cycle:
            if slot != outside:
                self._look_at(slot)


def _cycles(parents: Ints) -> list[list[int]]:
    """All cycles of a graph in which every node has at most one parent, each from the first to the last."""
    colour, found = [0] * len(parents), []
    following = parents.tolist()
    for start in range(len(following)):
        node, path = start, []
        while node >= 0 and not colour[node]:
            colour[node] = start + 1
            path.append(node)
            node = following[node]
        if node >= 0 and colour[node] == start + 1:
            found.append(path[path.index(node) :][::-1])
    return found

"""The least sum of completion times of tasks that run one after the other: exact if all count alike, bounded if not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tonnage.allocate.assign.problem import Assigned, Instance
from tonnage.allocate.assign.reduce import Reduced, reduced
from tonnage.allocate.assign.slots import Slots
from tonnage.allocate.speeds import Floats, Ints
from tonnage.errors import UsageError

_MOST_LEVELS = 8  # of weights, in the bound


def least_total_completion(instance: Instance, start: Assigned | None = None) -> Assigned:
    """Minimises the (weighted) sum of completion times. With equal weights the answer is exact; `start` only saves time."""
    if instance.resident:
        raise UsageError("resident tasks run side by side", "ask for the makespan, or say that tasks are not resident")
    core = reduced(instance)
    if core.instance.size == 0:
        return core.nothing()
    weights = core.instance.weights
    if np.ptp(weights) == 0:
        exact = _solve(core.instance, None if start is None else _positions_from_end(core, start))
        value = exact.total * float(weights[0])
        return core.expanded(
            exact.gpus(core.instance), -exact.positions.astype(float), value=value, bound=exact.bound * float(weights[0]),
            type_prices=exact.type_prices * float(weights[0]),
        )  # fmt: skip
    return _weighted(core)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Exact:
    """Each task's type and its position from the end, from 1: it delays itself and all that follow."""

    types: Ints
    positions: Ints
    total: float
    bound: float  # of the dual: the proof
    type_prices: Floats

    def gpus(self, instance: Instance) -> Ints:
        """Which tasks share a GPU changes no sum. Long beside short keeps the loads alike."""
        seconds = instance.seconds[np.arange(instance.size), self.types]
        first = np.concatenate([[0], np.cumsum(instance.counts)])
        gpus = np.empty(instance.size, dtype=np.int64)
        for position in range(1, int(self.positions.max()) + 1):
            for number in range(len(instance.counts)):
                tasks = np.flatnonzero((self.types == number) & (self.positions == position))
                sign = 1.0 if position % 2 else -1.0
                gpus[tasks[np.argsort(sign * seconds[tasks], kind="stable")]] = first[number] + np.arange(len(tasks))
        return gpus


def completion_bound(instance: Instance, extra_seconds: Floats) -> tuple[float, Floats]:
    """Of the weighted sum, where each task (task, type) ends so much later than its turn is over; and what one more GPU of
    each type would take off."""
    return _weighted_bound(instance, np.where(instance.possible, extra_seconds, 0.0))


def _solve(instance: Instance, start: tuple[Ints, Ints] | None, extra_seconds: Floats | None = None) -> _Exact:
    """Adds positions until the last of each type has a free place.

    Then none of its places has a price. A task would pay more for a place further from the end, so more positions would not
    help: the dual's solution stays feasible with such places at no price, and the primal's keeps its value.
    """
    types, positions = start or _longest_first(instance)
    depth = np.bincount(types, minlength=len(instance.counts)) // instance.counts + 1
    np.maximum.at(depth, types, positions)
    while True:
        exact, free = _solve_within(instance, types, positions, depth, extra_seconds)
        if free.all():
            return exact
        types, positions, depth = exact.types, exact.positions, depth + ~free


def _solve_within(
    instance: Instance, types: Ints, positions: Ints, depth: Ints, extra_seconds: Floats | None
) -> tuple[_Exact, Ints]:
    """The optimum with so many positions of each type, and which types have a free place at their last."""
    slot_types = np.repeat(np.arange(len(depth)), depth)
    first = np.cumsum(depth) - depth
    slot_positions = np.arange(len(slot_types)) - first[slot_types] + 1
    seconds = np.where(instance.possible, instance.seconds, np.inf)
    costs, places = seconds[:, slot_types] * slot_positions, instance.counts[slot_types]
    if extra_seconds is not None:
        costs += extra_seconds[:, slot_types]
    slots = Slots(costs, places, first[types] + positions - 1)
    prices = slots.solve()
    exact = _Exact(
        types=slot_types[slots.slots],
        positions=slot_positions[slots.slots],
        total=float(costs[np.arange(instance.size), slots.slots].sum()),
        bound=float((costs + prices).min(axis=1).sum() - prices @ places),
        type_prices=np.bincount(slot_types, prices, len(depth)).astype(float),
    )
    return exact, slots.free[first + depth - 1] > 0


def _longest_first(instance: Instance) -> tuple[Ints, Ints]:
    """Each task takes the cheapest place that is left, the longest first: exact if types differ in speed alone."""
    seconds = np.where(instance.possible, instance.seconds, np.inf)
    position, left = np.ones(len(instance.counts), dtype=np.int64), instance.counts.copy()
    types, positions = np.empty((2, instance.size), dtype=np.int64)
    for task in np.argsort(-seconds.min(axis=1), kind="stable"):
        best = int((seconds[task] * position).argmin())
        types[task], positions[task] = best, position[best]
        left[best] -= 1
        if left[best] == 0:
            left[best], position[best] = instance.counts[best], position[best] + 1
    return types, positions


def _positions_from_end(core: Reduced, start: Assigned) -> tuple[Ints, Ints] | None:
    """Those of a former answer, if it has a place for every task."""
    if len(start.types) != core.whole.size or (start.types[core.tasks] < 0).any():
        return None
    types = np.searchsorted(core.types, start.types[core.tasks])
    gpus = core.instance.counts.max() * types + start.gpus[core.tasks]
    length = np.bincount(gpus)
    return types, length[gpus] - start.positions[core.tasks]


def _weighted(core: Reduced) -> Assigned:
    """Most weight a second first, each where it ends first; the bound is from tasks of equal weight."""
    instance = core.instance
    seconds = np.where(instance.possible, instance.seconds, np.inf)
    type_of = np.repeat(np.arange(len(instance.counts)), instance.counts)
    loads, gpus = np.zeros(len(type_of)), np.empty(instance.size, dtype=np.int64)
    for task in np.argsort(-instance.weights / np.maximum(seconds.min(axis=1), 1e-300), kind="stable"):
        ends = loads + seconds[task][type_of]
        gpus[task] = ends.argmin()
        loads[gpus[task]] = ends[gpus[task]]
    here = seconds[np.arange(instance.size), type_of[gpus]]
    order = -instance.weights / np.maximum(here, 1e-300)  # the best order on one GPU (Smith, 1956)
    bound, prices = _weighted_bound(instance, np.zeros(seconds.shape))
    value = _total(instance, gpus, here, order)
    return core.expanded(gpus, order, value=value, bound=bound, type_prices=prices)


def _total(instance: Instance, gpus: Ints, seconds: Floats, order: Floats) -> float:
    sequence = np.lexsort((order, gpus))
    ends = np.cumsum(seconds[sequence])
    first = np.searchsorted(gpus[sequence], gpus[sequence])
    return float(instance.weights[sequence] @ (ends - ends[first] + seconds[sequence][first]))


def _weighted_bound(instance: Instance, extra_seconds: Floats) -> tuple[float, Floats]:
    """A weight is a sum of steps; for each step, the tasks that have it do not end earlier than if they were alone.

    Weights between two levels count as the lower one, which makes the bound smaller, never wrong.
    """
    weights = np.unique(instance.weights)
    levels = weights if len(weights) <= _MOST_LEVELS else np.quantile(weights, np.linspace(0, 1, _MOST_LEVELS + 1)[:-1])
    total, below, prices = 0.0, 0.0, np.zeros(len(instance.counts))
    for level in levels:
        tasks = np.flatnonzero(instance.weights >= level)
        exact = _solve(instance.of_tasks(tasks), None, extra_seconds[tasks])
        total += (float(level) - below) * exact.bound
        prices += (float(level) - below) * exact.type_prices
        below = float(level)
    return total, prices

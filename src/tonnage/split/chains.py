"""The best chain of sets in a family: dynamic programming over sets and how many devices of each class are in use.

Exact where the family is complete. A state (set, devices used) is kept only while the rest can still be done: at the
prices of `prices.py`, what the remaining devices offer below the cap must cover what the rest costs at least. With a cap
near the best value that leaves few sets at each depth, so pairs of sets are compared between those alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

import numpy as np
import numpy.typing as npt

from tonnage.split.family import Family
from tonnage.split.prices import Prices
from tonnage.split.problem import Floats, Problem

_SLACK = 1 + 1e-9  # sums of many numbers differ in their last digits

_BETWEEN_LOOKS = 64  # sets between two looks at the time

# How many micro-batches a stage keeps, by how many devices are in use before it.
InFlight = Callable[[int], int]


class OutOfTime(Exception):
    """A search was given up, and nothing is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What a chain is judged by: its largest load, or (`adds`) a sum over its stages of what each costs, by class of
    devices: for a second of computing, for a unit moved, and for a device as such."""

    adds: bool = False
    second: tuple[float, ...] = ()
    unit: tuple[float, ...] = ()
    device: tuple[float, ...] = ()


LARGEST_LOAD = Goal()


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of the chain: the groups (as bits) that devices of a class take over, each for its share of the samples."""

    groups: int
    device_class: int
    replicas: int = 1


@dataclass(frozen=True, slots=True)
class Chain:
    """Stages in their order, and the value of the goal."""

    value: float
    stages: tuple[Stage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mode:
    """A way to run a stage: so many devices of one class."""

    device_class: int
    replicas: int
    stride: int


@dataclass(slots=True)
class _Table:
    """By state and set: the best value, and the set and the mode by which it was reached."""

    value: Floats
    came_from: npt.NDArray[np.int32]
    by_mode: npt.NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class _Reached:
    """Sets that contain the one at hand, and what a stage between the two would compute and move."""

    sets: npt.NDArray[np.int64]
    seconds: Floats  # by class
    possible: npt.NDArray[np.bool_]  # by class
    inputs: Floats  # what comes in going forward
    incoming: Floats
    outgoing: Floats
    memory_bytes: Floats
    stash_bytes: Floats
    sync_bytes: Floats
    unshared: npt.NDArray[np.bool_]  # whether one device must do it all


@dataclass(slots=True)
class _Search:
    """One run over a family."""

    family: Family
    prices: Prices
    goal: Goal
    cap: float
    most_replicas: int
    in_flight: InFlight
    keep_going: Callable[[], bool]
    tightens: bool  # the cap follows the best value found, for only the best is wanted
    shape: tuple[int, ...] = field(init=False)
    modes: list[_Mode] = field(init=False)
    used: npt.NDArray[np.int64] = field(init=False)
    room: Floats = field(init=False)
    table: _Table = field(init=False)

    def __post_init__(self) -> None:
        counts = [each.count for each in self.problem.classes]
        self.shape = tuple(count + 1 for count in counts)
        states = int(np.prod(self.shape))
        strides = [int(np.prod(self.shape[index + 1 :])) for index in range(len(counts))]
        self.modes = [
            _Mode(device_class=index, replicas=replicas, stride=replicas * strides[index])
            for index, count in enumerate(counts)
            for replicas in range(1, min(count, self.most_replicas) + 1)
        ]
        self.used = np.indices(self.shape).reshape(len(counts), states)
        left = np.array(counts)[:, None] - self.used
        self.room = np.asarray((self.prices.of_class[:, None] * left).sum(axis=0))
        size = self.family.size
        self.table = _Table(
            np.full((states, size), inf), np.full((states, size), -1, np.int32), np.full((states, size), -1, np.int16)
        )
        self.table.value[0, 0] = 0.0

    @property
    def problem(self) -> Problem:
        return self.family.problem

    def run(self) -> None:
        for position in range(self.family.size - 1):
            if position % _BETWEEN_LOOKS == 0 and not self.keep_going():
                raise OutOfTime
            states = self._live(position)
            if len(states):
                self._extend(position, states)

    def best(self) -> Chain | None:
        last = self.table.value[:, -1]
        return self._chain(int(last.argmin())) if np.isfinite(last.min()) else None

    def of_each_use(self) -> list[Chain]:
        """The best chain for every choice of devices in use that no choice with fewer of them beats."""
        return [self._chain(state) for state in self._live(self.family.size - 1)]

    def _live(self, position: int) -> list[int]:
        """States that no other one beats with the same devices or fewer."""
        column = self.table.value[:, position]
        finite = np.flatnonzero(column <= self.cap)
        if len(finite) < 2:
            return list(map(int, finite))
        grid = column.reshape(self.shape)
        for axis in range(grid.ndim):
            grid = np.minimum.accumulate(grid, axis=axis)
        below = np.full(self.shape, inf)
        for axis in range(grid.ndim):
            later = [slice(None)] * grid.ndim
            earlier = list(later)
            later[axis], earlier[axis] = slice(1, None), slice(None, -1)
            below[tuple(later)] = np.minimum(below[tuple(later)], grid[tuple(earlier)])
        flat = below.reshape(-1)
        return [int(state) for state in finite if column[state] < flat[state]]

    def _first(self, state: int) -> int:
        """The first set from which the devices left in this state can do the rest."""
        if self.cap == inf:
            return 0
        needed = float(self.prices.of_group.sum()) - self.room[state] * self.cap * _SLACK
        return int(np.searchsorted(self.family.key, needed * (1 - 1e-12) - 1e-300))

    def _extend(self, position: int, states: list[int]) -> None:
        moves = [
            (state, mode, self._first(state + mode.stride))
            for state in states
            for mode in self.modes
            if self.used[mode.device_class, state] + mode.replicas <= self.problem.classes[mode.device_class].count
        ]
        if not moves:
            return
        first = max(min(start for _, _, start in moves), position + 1)
        widest = max(self.prices.of_class[mode.device_class] * mode.replicas for _, mode, _ in moves)
        reach = self.family.key[position] + widest * self.cap * _SLACK + 1e-300
        last = int(np.searchsorted(self.family.key, reach, side="right"))
        if first >= last:
            return
        reached = self._reached(position, first, last)
        costs: dict[tuple[int, int], tuple[Floats, Floats]] = {}
        for state, mode, start in moves:
            key = (mode.device_class, mode.replicas)
            if key not in costs:
                costs[key] = self._costs(reached, mode)
            self._update(position, state, mode, start, reached, *costs[key])

    def _reached(self, position: int, first: int, last: int) -> _Reached:
        family = self.family
        sets = first + np.flatnonzero(family.contain(position, slice(first, last)))
        words = family.words[:, sets]
        incoming, outgoing, relayed = np.zeros(len(sets)), np.zeros(len(sets)), np.zeros(len(sets))
        still = family.open_weight[:, sets] - family.open_weight[:, position, None]
        for net in family.open_nets(position):
            touched, held = family.joins(net, words, position)
            there, back = family.weights[net]
            incoming += there * touched
            outgoing += back * touched
            if self.problem.passes_on:
                relayed += there * (touched & ~held)
            still += family.made_weights[net][:, None] * held
        return _Reached(
            sets,
            family.seconds[:, sets] - family.seconds[:, position, None],
            family.impossible[:, sets] == family.impossible[:, position, None],
            incoming,
            incoming + still[1],
            outgoing + relayed + still[0],
            family.memory_bytes[sets] - family.memory_bytes[position],
            family.stash_bytes[sets] - family.stash_bytes[position],
            family.sync_bytes[sets] - family.sync_bytes[position],
            family.unshared[sets] > family.unshared[position],
        )

    def _costs(self, reached: _Reached, mode: _Mode) -> tuple[Floats, Floats]:
        """Load, and what the goal counts; infinite where the stage is impossible."""
        device_class = self.problem.classes[mode.device_class]
        seconds = reached.seconds[mode.device_class]
        share, exchanged = 1 / mode.replicas, (mode.replicas - 1) * reached.sync_bytes
        incoming = device_class.seconds_per_unit * (share * reached.incoming + exchanged)
        outgoing = device_class.seconds_per_unit_out * (share * reached.outgoing + exchanged)
        if self.problem.overlaps:
            load = np.maximum(share * seconds, np.maximum(incoming, outgoing))
        else:
            load = share * seconds + incoming + outgoing
        possible = reached.possible[mode.device_class]
        if mode.replicas > 1:
            possible = possible & ~reached.unshared
        load = np.where(possible, load, inf)
        if not self.goal.adds:
            return load, load
        index = mode.device_class
        moved = reached.incoming + reached.outgoing
        cost = self.goal.second[index] * seconds + self.goal.unit[index] * moved
        return load, cost + self.goal.device[index] * mode.replicas

    def _update(
        self, position: int, state: int, mode: _Mode, start: int, reached: _Reached, load: Floats, cost: Floats
    ) -> None:
        target = state + mode.stride
        skip = int(np.searchsorted(reached.sets, start))
        sets, load, cost = reached.sets[skip:], load[skip:], cost[skip:]
        before = self.table.value[state, position]
        value = before + cost if self.goal.adds else np.maximum(before, cost)
        kept = reached.stash_bytes[skip:] + (reached.inputs[skip:] if self.problem.keeps_inputs else 0.0)
        held = -(-self.in_flight(int(self.used[:, state].sum())) // mode.replicas)
        memory = reached.memory_bytes[skip:] + held * kept
        better = (load <= self.cap) & (value < self.table.value[target, sets])
        better &= memory <= self.problem.classes[mode.device_class].memory_bytes
        chosen = sets[better]
        self.table.value[target, chosen] = value[better]
        self.table.came_from[target, chosen] = position
        self.table.by_mode[target, chosen] = self.modes.index(mode)
        if self.tightens and len(chosen) and chosen[-1] == self.family.size - 1:
            self.cap = min(self.cap, float(self.table.value[target, -1]))

    def _chain(self, state: int) -> Chain:
        value, position = float(self.table.value[state, -1]), self.family.size - 1
        stages: list[Stage] = []
        while position > 0:
            before = int(self.table.came_from[state, position])
            mode = self.modes[int(self.table.by_mode[state, position])]
            groups = self.family.mask(position) & ~self.family.mask(before)
            stages.append(Stage(groups, mode.device_class, mode.replicas))
            state, position = state - mode.stride, before
        return Chain(value, tuple(reversed(stages)))


def best_chain(
    family: Family,
    prices: Prices,
    *,
    cap: float = inf,
    goal: Goal = LARGEST_LOAD,
    most_replicas: int = 1,
    in_flight: InFlight = lambda used: 1,
    keep_going: Callable[[], bool] = lambda: True,
) -> Chain | None:
    """The best chain of the family with no load above `cap`; None if there is none. Raises `OutOfTime`."""
    search = _Search(family, prices, goal, cap, most_replicas, in_flight, keep_going, tightens=not goal.adds)
    search.run()
    return search.best()


def chains_of_each_use(
    family: Family, prices: Prices, *, most_replicas: int = 1, in_flight: InFlight = lambda used: 1
) -> list[Chain]:
    """For every choice of devices (so many of each class), the chain with the least largest load, where more devices bring
    less load."""
    search = _Search(family, prices, LARGEST_LOAD, inf, most_replicas, in_flight, lambda: True, tightens=False)
    search.run()
    return search.of_each_use()

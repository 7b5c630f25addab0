"""Distributions that need not be contiguous: every group on any device, by CP-SAT from the best contiguous one.

Costs enter the model rounded down to whole numbers, so its bound holds for the true costs as well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import floor, isfinite
from typing import TYPE_CHECKING

from tonnage.errors import MissingDependency
from tonnage.split.coarsen import contract, uncuttable
from tonnage.split.problem import Floats, Net, Problem

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

_STEPS = 10**7  # of the largest possible value; CP-SAT counts in whole numbers
_NEARLY = 1 + 1e-6


@dataclass(frozen=True, slots=True)
class Scattered:
    """The device of each group of `problem` (by class and number in it), its largest load and a bound on that."""

    problem: Problem
    places: tuple[tuple[int, int], ...]
    value: float
    bound: float

    @property
    def is_proven(self) -> bool:
        return self.value <= self.bound * _NEARLY


def split_anywhere(
    problem: Problem,
    start: dict[int, tuple[int, int]],
    *,
    seconds: float,
    workers: int = 2,
) -> Scattered:
    """The best distribution found in that time. `start` gives the place of each operation's position in a first one."""
    value = largest_load(problem, [start[members[0]] for members in problem.members])
    unordered = replace(problem, followers=((),) * problem.size)
    joined = contract(unordered, uncuttable(unordered, value))
    first = [start[members[0]] for members in joined.members]
    return _Model(joined, value).solve(first, seconds, workers)


def largest_load(problem: Problem, places: list[tuple[int, int]]) -> float:
    """Of the devices that hold groups, by `problem.py`'s rules."""
    loads: dict[tuple[int, int], list[float]] = {}
    for group, (kind, number) in enumerate(places):
        sums = loads.setdefault((kind, number), [0.0, 0.0, 0.0])
        sums[0] += float(problem.classes[kind].seconds[group])
    for net in problem.nets:
        for place in {places[group] for group in net.members}:
            if any(places[group] != place for group in net.members):
                unit = problem.classes[place[0]].seconds_per_unit
                loads[place][1] += unit * net.weight
                loads[place][2] += unit * net.back
    return max((sum(each) for each in loads.values()), default=0.0)


class _Model:
    def __init__(self, problem: Problem, most: float) -> None:
        try:
            from ortools.sat.python import cp_model
        except ModuleNotFoundError:
            raise MissingDependency(
                "subnetworks that are not contiguous need the ortools package", "pip install tonnage[split]"
            ) from None
        self._problem, self._most = problem, most
        self._scale = _STEPS / most if most > 0 else 1.0
        self._places = [(kind, number) for kind, each in enumerate(problem.classes) for number in range(each.count)]
        self._model = cp_model.CpModel()
        self._solver = cp_model.CpSolver()
        self._status = cp_model
        self._on = [[self._model.new_bool_var("") for _ in self._places] for _ in range(problem.size)]
        self._largest = self._model.new_int_var(0, _STEPS, "largest load")
        self._state()

    def _state(self) -> None:
        for row in self._on:
            self._model.add_exactly_one(row)
        for index, (kind, _) in enumerate(self._places):
            device_class = self._problem.classes[kind]
            terms = self._computing(index, device_class.seconds)
            if device_class.seconds_per_unit > 0:
                terms += [self._moving(index, net, device_class.seconds_per_unit) for net in self._problem.nets]
            self._model.add(sum(terms) <= self._largest)
            if isfinite(device_class.memory_bytes):
                held = [
                    floor(size) * row[index] for size, row in zip(self._problem.memory_bytes, self._on, strict=True)
                ]
                self._model.add(sum(held) <= floor(device_class.memory_bytes))
        self._model.minimize(self._largest)

    def _whole(self, value: float) -> int:
        return floor(value * self._scale)

    def _computing(self, index: int, seconds: Floats) -> list[cp_model.LinearExprT]:
        terms: list[cp_model.LinearExprT] = []
        for row, each in zip(self._on, seconds, strict=True):
            if isfinite(each):
                terms.append(self._whole(float(each)) * row[index])
            else:
                self._model.add(row[index] == 0)
        return terms

    def _moving(self, index: int, net: Net, seconds_per_unit: float) -> cp_model.LinearExprT:
        """A net is moved unless each member being here implies the next being here, all the way round."""
        moved = self._model.new_bool_var("")
        members = [self._on[group][index] for group in net.members]
        for one, next_one in zip(members, members[1:] + members[:1], strict=True):
            self._model.add_bool_or(one.negated(), next_one, moved)
        return self._whole((net.weight + net.back) * seconds_per_unit) * moved

    def solve(self, first: list[tuple[int, int]], seconds: float, workers: int) -> Scattered:
        for row, place in zip(self._on, first, strict=True):
            for index, each in enumerate(self._places):
                self._model.add_hint(row[index], int(each == place))
        solver = self._solver
        solver.parameters.max_time_in_seconds = seconds
        solver.parameters.num_workers = workers
        solver.parameters.symmetry_level = 2  # equal devices may change places
        solver.parameters.random_seed = 0
        status = solver.solve(self._model)
        places = first
        if status in (self._status.OPTIMAL, self._status.FEASIBLE):
            places = [self._places[[solver.value(each) for each in row].index(1)] for row in self._on]
        value = largest_load(self._problem, places)
        return Scattered(self._problem, tuple(places), value, min(solver.best_objective_bound / self._scale, value))

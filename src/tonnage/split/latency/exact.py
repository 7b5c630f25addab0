"""Whether any assignment is faster than a given time, asked of a constraint solver (CP-SAT) in whole units of time.

Durations are rounded down, so that every real assignment is one of the model's: "none" is a proof. Each step from a place
to the next adds one unit, which the limit allows for; so places cannot wait for each other in a circle of no length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from importlib.util import find_spec
from math import isfinite
from threading import Event, Thread
from typing import TYPE_CHECKING

import numpy as np

from tonnage.split.latency.graph import Graph
from tonnage.split.latency.problem import CPU
from tonnage.split.latency.timing import Ints

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, CpSolver, IntVar

UNITS = 2**30  # in the given time
LARGEST = 240  # classes times accelerators: beyond, the model is built in vain
WORK = 1.0  # of the solver for one question, in its deterministic seconds (some 8 of a core)


class Verdict(Enum):
    NONE = "none"
    FOUND = "found"
    UNKNOWN = "unknown"


def can_ask(graph: Graph) -> bool:
    """Whether the solver is installed and the question of a size that it may answer."""
    count = len(set(graph.problem.classes)) * graph.problem.accelerators
    return 0 < count <= LARGEST and find_spec("ortools") is not None


def faster_than(graph: Graph, seconds: float, keep_going: Callable[[], bool]) -> tuple[Verdict, Ints]:
    """Devices by node if there is an assignment faster than this, up to one part in a million."""
    from ortools.sat.python import cp_model

    questions = _Question.about(graph, seconds)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = WORK
    status = _stoppable(solver, questions.model, keep_going)
    if status == cp_model.INFEASIBLE:
        return Verdict.NONE, np.array([], dtype=np.int64)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Verdict.FOUND, questions.devices(solver)
    return Verdict.UNKNOWN, np.array([], dtype=np.int64)


def _stoppable(solver: CpSolver, model: CpModel, keep_going: Callable[[], bool]) -> object:
    """The solver has no hook that is called in time, so a thread asks `keep_going`."""
    done = Event()

    def watch() -> None:
        while not done.wait(0.1):
            if not keep_going():
                solver.stop_search()
                return

    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    try:
        return solver.solve(model)
    finally:
        done.set()
        watcher.join()


@dataclass(slots=True)
class _Question:
    """The model while it is written down."""

    graph: Graph
    model: CpModel
    scale: float  # units in a second
    limit: int
    on: list[list[IntVar]]  # by node and accelerator; one variable for a class
    alone: list[IntVar]  # by node: on the processors
    start: list[IntVar]  # by node: its turn inside its place
    finish: list[IntVar]  # by node: when its place is finished

    @classmethod
    def about(cls, graph: Graph, seconds: float) -> _Question:
        from ortools.sat.python import cp_model

        nodes = graph.problem.nodes
        model, limit = cp_model.CpModel(), UNITS + nodes + 1
        question = cls(graph, model, UNITS / seconds, limit, [], [], [], [])
        question._places()
        question.start = [model.new_int_var(0, limit, "") for _ in range(nodes)]
        question.finish = [model.new_int_var(0, limit, "") for _ in range(nodes)]
        for accelerator in range(graph.problem.accelerators):
            question._accelerator(accelerator)
        for node in range(nodes):
            question._node(node)
        return question

    def devices(self, solver: CpSolver) -> Ints:
        found = [[k for k, var in enumerate(on) if solver.boolean_value(var)] for on in self.on]
        return np.array([each[0] if each else CPU for each in found], dtype=np.int64)

    def _units(self, seconds: float) -> int:
        return int(min(seconds * self.scale, 2.0 * self.limit))

    def _places(self) -> None:
        """Each class on one accelerator or on the processors; accelerators are equal, so the first class has the first."""
        problem, model = self.graph.problem, self.model
        count = problem.accelerators
        by_class: dict[int, list[IntVar]] = {}
        for node, name in enumerate(problem.classes):
            if name not in by_class:
                by_class[name] = [model.new_bool_var("") for _ in range(count + 1)]
                model.add_exactly_one(by_class[name])
                for k in range(1, count):
                    model.add(by_class[name][k] <= sum(other[k - 1] for other in by_class.values()))
            *on, alone = by_class[name]
            if self.graph.processors >> node & 1:
                model.add(alone == 1)
            self.on.append(on)
            self.alone.append(alone)

    def _accelerator(self, k: int) -> None:
        """Its memory, its duration, and the inputs that it waits for."""
        graph, problem, model = self.graph, self.graph.problem, self.model
        self._memory(k)
        begin = model.new_int_var(0, self.limit, "")
        end = model.new_int_var(0, self.limit, "")
        parts = []
        for node, consumers in enumerate(graph.consumers):
            own = self.on[node][k]
            model.add(self.finish[node] == end).only_enforce_if(own)
            if isfinite(problem.accelerator_seconds[node]):
                parts.append(self._units(problem.accelerator_seconds[node]) * own)
            if not consumers:
                continue
            taken_in, sent_out = model.new_bool_var(""), model.new_bool_var("")
            parts.append(self._units(problem.transfer_seconds[node]) * (taken_in + sent_out))
            for other in consumers:
                model.add_bool_or(~self.on[other][k], own, taken_in)
                model.add_bool_or(~own, self.on[other][k], sent_out)
            model.add(begin >= self.finish[node] + 1).only_enforce_if(taken_in)
        model.add(end >= begin + sum(parts))

    def _memory(self, k: int) -> None:
        """In bytes where they are whole, else in parts of the memory, rounded down; nothing needs more than twice that."""
        problem = self.graph.problem
        sizes, memory = problem.size_bytes, problem.memory_bytes
        if sum(sizes) <= memory:
            return
        if all(size == int(size) for size in sizes) and sum(sizes) < 2**60:
            units, limit = [int(size) for size in sizes], int(memory)
        elif memory > 0:
            units, limit = [int(min(size / memory, 2.0) * UNITS) for size in sizes], UNITS
        else:
            units, limit = [int(size > 0) for size in sizes], 0
        self.model.add(sum(unit * on[k] for unit, on in zip(units, self.on, strict=True)) <= limit)

    def _node(self, node: int) -> None:
        """A node after its inputs. The turns inside of places follow from the rest, but tell the solver of long paths."""
        graph, problem, model = self.graph, self.graph.problem, self.model
        alone, cpu = self.alone[node], self._units(problem.cpu_seconds[node])
        own = cpu * alone
        if isfinite(problem.accelerator_seconds[node]):
            own += self._units(problem.accelerator_seconds[node]) * (1 - alone)
        model.add(self.start[node] + own <= self.finish[node])
        for source in graph.inputs[node]:
            model.add(self.finish[node] >= self.finish[source] + cpu + 1).only_enforce_if(alone)
            model.add(self.finish[node] >= self.finish[source])
        moved = self._units(problem.transfer_seconds[node])
        for other in graph.consumers[node]:
            leaves, enters = model.new_bool_var(""), model.new_bool_var("")
            for mine, theirs in zip(self.on[node], self.on[other], strict=True):
                model.add_bool_or(~mine, theirs, leaves)
                model.add_bool_or(~theirs, mine, enters)
            model.add(self.start[other] >= self.start[node] + own + moved * (leaves + enters))

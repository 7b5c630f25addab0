"""A bound for wide networks: what all accelerators together can do in a time, and what they can hold.

Let every node be on the accelerators to some part. Along each path, parts on the processors take their time and parts on
accelerators theirs; no accelerator works longer than the latency; their memories hold all parts. Every assignment is such a
division (with parts of 0 and 1, and transfers that take no time), so the least latency of a division, a linear program, is
a bound. Moreover, who claims to be done within a time cannot have a node on the processors that, with the fastest way to it
and from it, takes longer: where the program with those nodes on accelerators needs more than the time, the claim is false.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from tonnage.split.latency.graph import Graph
from tonnage.split.latency.timing import Floats

ROUNDING = 1e-6  # what the linear solver may be off, as a part of its value
STEPS = 12  # halvings of what is left between bound and value


def load_bound(graph: Graph, value: float, keep_going: Callable[[], bool]) -> float:
    """In seconds; `value` is the latency of an assignment, and no more than that is tried."""
    program, shortest = _program(graph), _through(graph)
    low, high = program.least(np.zeros(graph.problem.nodes, dtype=bool)), value
    for _ in range(STEPS):
        if low >= high or not keep_going():
            break
        middle = (low + high) / 2
        if program.least(shortest > middle * (1 + ROUNDING)) > middle:
            low = middle
        else:
            high = middle
    return low


@dataclass(frozen=True, slots=True, kw_only=True)
class _Program:
    """Columns: the part of each node on accelerators, when each is finished, the latency. In parts of the units."""

    entries: list[tuple[int, int, float]]  # row, column, value
    limits: list[float]
    unit_seconds: float
    left_out: NDArray[np.bool_]

    def least(self, forced: NDArray[np.bool_]) -> float:
        """The latency with these nodes on accelerators; infinite where they cannot be."""
        from scipy.optimize import linprog  # heavy, and only needed here
        from scipy.sparse import coo_array

        if (forced & self.left_out).any():
            return inf
        nodes = len(forced)
        rows, columns, values = zip(*self.entries, strict=True)
        matrix = coo_array((values, (rows, columns)), shape=(len(self.limits), 2 * nodes + 1)).tocsr()
        parts = [(float(must), float(not out)) for must, out in zip(forced, self.left_out, strict=True)]
        costs = np.append(np.zeros(2 * nodes), 1.0)
        bounds = parts + [(0.0, None)] * (nodes + 1)
        result = linprog(costs, A_ub=matrix, b_ub=self.limits, bounds=bounds, method="highs")
        if result.status == 2:
            return inf
        return float(result.fun) * self.unit_seconds * (1 - ROUNDING) if result.status == 0 else 0.0


def _program(graph: Graph) -> _Program:
    problem, nodes = graph.problem, graph.problem.nodes
    left_out = np.array([graph.processors >> node & 1 for node in range(nodes)], dtype=bool)
    unit_seconds = max(problem.cpu_seconds) or 1.0
    cpu = np.array(problem.cpu_seconds) / unit_seconds
    own = np.where(left_out, 0.0, problem.accelerator_seconds) / unit_seconds
    entries, limits = _paths(graph, cpu, own)
    entries += [(len(limits), node, own[node]) for node in range(nodes)]
    entries.append((len(limits), 2 * nodes, -float(problem.accelerators)))
    limits.append(0.0)
    all_bytes = sum(problem.size_bytes) or 1.0
    entries += [(len(limits), node, problem.size_bytes[node] / all_bytes) for node in range(nodes)]
    limits.append(min(problem.accelerators * problem.memory_bytes / all_bytes, 1.0))
    return _Program(entries=entries, limits=limits, unit_seconds=unit_seconds, left_out=left_out)


def _paths(graph: Graph, cpu: Floats, own: Floats) -> tuple[list[tuple[int, int, float]], list[float]]:
    """A node is finished its time after each of its inputs; the latency is when the last is."""
    nodes = graph.problem.nodes
    entries: list[tuple[int, int, float]] = []
    limits: list[float] = []
    for node in range(nodes):
        for source in graph.inputs[node] or (None,):
            entries += [(len(limits), node, own[node] - cpu[node]), (len(limits), nodes + node, -1.0)]
            entries += [(len(limits), nodes + source, 1.0)] if source is not None else []
            limits.append(-cpu[node])
        if not graph.consumers[node]:
            entries += [(len(limits), nodes + node, 1.0), (len(limits), 2 * nodes, -1.0)]
            limits.append(0.0)
    return entries, limits


def _through(graph: Graph) -> Floats:
    """The longest path through each node with that node on the processors and all others where they are fastest."""
    fastest = graph.fastest_seconds()
    head, tail = [0.0] * len(fastest), [0.0] * len(fastest)
    for node in graph.order:
        head[node] = max((head[other] + fastest[other] for other in graph.inputs[node]), default=0.0)
    for node in reversed(graph.order):
        tail[node] = max((tail[other] + fastest[other] for other in graph.consumers[node]), default=0.0)
    sums = [sum(each) for each in zip(head, tail, graph.problem.cpu_seconds, strict=True)]
    return np.array(sums, dtype=np.float64)

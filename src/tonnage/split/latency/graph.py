"""The network of a latency problem as sets of nodes: who comes before whom, and who must share an accelerator.

Sets are integers with one bit for each node, so that unions and intersections of thousands of nodes are one operation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from math import isfinite

from tonnage.errors import UsageError
from tonnage.split.latency.problem import LatencyProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Everything by node; sets as bits."""

    problem: LatencyProblem
    order: tuple[int, ...]  # each node after its inputs
    inputs: tuple[tuple[int, ...], ...]
    consumers: tuple[tuple[int, ...], ...]
    before: tuple[int, ...]  # a node and all that it needs, directly or not
    after: tuple[int, ...]  # a node and all that need it
    group: tuple[int, ...]  # the nodes of its class
    hull: tuple[int, ...]  # the nodes that any subgraph with this one has
    processors: int  # the nodes that no subgraph can have

    def closed(self, nodes: int) -> int:
        """The smallest set with these nodes that is contiguous and parts no class."""
        hull = Hull(self)
        hull.add(nodes)
        return hull.nodes

    def joined(self, closed: int, node: int) -> int:
        """The closed set of a closed set and one more node."""
        return closed if closed >> node & 1 else self.closed(closed | 1 << node)

    def size_bytes(self, nodes: int) -> float:
        return sum(self.problem.size_bytes[node] for node in bits(nodes))

    def fastest_seconds(self) -> list[float]:
        """Of each node by itself, where it can run fastest."""
        problem = self.problem
        pairs = zip(problem.cpu_seconds, problem.accelerator_seconds, strict=True)
        return [cpu if self.processors >> node & 1 else min(cpu, own) for node, (cpu, own) in enumerate(pairs)]


class Hull:
    """A closed set that grows."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.nodes, self._above, self._below = 0, 0, 0

    def add(self, nodes: int) -> int:
        """Take these nodes in and all that must then be there; returns what is new."""
        todo, old = nodes & ~self.nodes, self.nodes
        while todo:
            wanted = 0
            for node in bits(todo):
                self._above |= self._graph.after[node]
                self._below |= self._graph.before[node]
                wanted |= self._graph.group[node]
            self.nodes |= todo
            todo = (wanted | self._above & self._below) & ~self.nodes
        return self.nodes & ~old


def bits(nodes: int) -> Iterator[int]:
    """The members of a set."""
    while nodes:
        lowest = nodes & -nodes
        yield lowest.bit_length() - 1
        nodes ^= lowest


def set_of(nodes: Sequence[int]) -> int:
    found = 0
    for node in nodes:
        found |= 1 << node
    return found


def graph_of(problem: LatencyProblem) -> Graph:
    """Refuses networks with a cycle."""
    inputs: list[dict[int, None]] = [{} for _ in range(problem.nodes)]
    consumers: list[dict[int, None]] = [{} for _ in range(problem.nodes)]
    for source, target in problem.edges:
        inputs[target][source] = None
        consumers[source][target] = None
    order = _order(inputs)
    before = _closure(order, inputs)
    after = _closure(order[::-1], consumers)
    graph = Graph(
        problem=problem,
        order=order,
        inputs=tuple(map(tuple, inputs)),
        consumers=tuple(map(tuple, consumers)),
        before=before,
        after=after,
        group=_groups(problem.classes),
        hull=(),
        processors=0,
    )
    return _with_hulls(graph)


def _order(inputs: list[dict[int, None]]) -> tuple[int, ...]:
    try:
        return tuple(TopologicalSorter(dict(enumerate(inputs))).static_order())
    except CycleError as error:
        raise UsageError(
            f"the network has a cycle through {error.args[1][:4]}", "a network to split has none"
        ) from error


def _closure(order: Sequence[int], neighbours: Sequence[dict[int, None]]) -> tuple[int, ...]:
    reach = [0] * len(order)
    for node in order:
        reach[node] = 1 << node
        for other in neighbours[node]:
            reach[node] |= reach[other]
    return tuple(reach)


def _groups(classes: Sequence[int]) -> tuple[int, ...]:
    members: dict[int, int] = {}
    for node, name in enumerate(classes):
        members[name] = members.get(name, 0) | 1 << node
    return tuple(members[name] for name in classes)


def _with_hulls(graph: Graph) -> Graph:
    """Hulls by class; a node whose hull has an unsupported node or exceeds the memory stays on the processors."""
    problem = graph.problem
    unsupported = set_of([node for node, seconds in enumerate(problem.accelerator_seconds) if not isfinite(seconds)])
    hulls: dict[int, int] = {}
    for node, name in enumerate(problem.classes):
        if name not in hulls:
            hulls[name] = graph.closed(1 << node)
    hull = tuple(hulls[name] for name in problem.classes)
    left_out = 0
    for node in range(problem.nodes):
        small = problem.accelerators and graph.size_bytes(hull[node]) <= problem.memory_bytes
        if hull[node] & unsupported or not small:
            left_out |= 1 << node
    return Graph(
        problem=problem,
        order=graph.order,
        inputs=graph.inputs,
        consumers=graph.consumers,
        before=graph.before,
        after=graph.after,
        group=graph.group,
        hull=hull,
        processors=left_out,
    )

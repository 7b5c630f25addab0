"""Times that no assignment beats.

Take one path of the network. A contiguous subgraph meets it in one stretch, so along the path an assignment is a sequence
of stretches, each on an accelerator of its own, and of nodes on the processors. Each must wait for the one before: the
latency is at least the sum of their times. A stretch takes at least what `least_seconds` says of a subgraph that has the
stretch and lacks its two neighbours (and so all that the first needs and all that needs the second, since it is
contiguous). The least sum over all sequences with at most as many stretches as there are accelerators is a bound.

Of a long path some nodes will do: a contiguous subgraph meets those in one stretch too, and what lies between is counted
only where it is certain to be.

Stretches start with a cheap bound of their time and get the good one only when a best sequence uses them: the bound grows
with every turn and holds whenever it is stopped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf

import numpy as np

from tonnage.split.latency.graph import Graph, Hull, bits
from tonnage.split.latency.subgraphs import Effort, Wanted, least_seconds, seconds_between
from tonnage.split.latency.timing import Floats

LONGEST = 400  # nodes of a path that are looked at


@dataclass(slots=True)
class Stretch:
    """Nodes `first` to `last` of a path on one accelerator."""

    first: int
    last: int
    inside: int  # what its subgraph has at least
    seconds: float
    exact: bool = False


class PathBound:
    """The bound of one path (or of some nodes of one, in their order), better with every turn."""

    def __init__(self, graph: Graph, path: Sequence[int]) -> None:
        self._graph = graph
        self._path = path
        self._ending: list[list[Stretch]] = [[] for _ in path]
        self._between = _between(graph, path)
        self.bound = 0.0

    def run(self, effort: Effort, goal: float) -> float:
        """Until the bound is exact or has reached the goal."""
        if not self._collect(effort):
            return 0.0
        rough = True
        while rough and self.bound < goal and effort.spend(len(self._path)):
            rough = self._turn(effort)
        return self.bound

    def _collect(self, effort: Effort) -> bool:
        """All stretches, or no."""
        for first in range(len(self._path)):
            if not effort.spend(len(self._path)):
                return False
            for stretch in _stretches(self._graph, self._path, first):
                self._ending[stretch.last].append(stretch)
        return True

    def _turn(self, effort: Effort) -> bool:
        """Find the least sum, and better bounds for its stretches; whether there were any to be found."""
        self.bound, used = self._sequence()
        rough = [stretch for stretch in used if not stretch.exact]
        for stretch in rough:
            wanted = self._wanted(stretch)
            seconds = seconds_between(self._graph, wanted) if not wanted.inside & wanted.outside else inf
            if seconds <= stretch.seconds:
                seconds, stretch.exact = least_seconds(self._graph, wanted, effort), True
            stretch.seconds = max(seconds, stretch.seconds)
        return bool(rough)

    def _wanted(self, stretch: Stretch) -> Wanted:
        graph, path = self._graph, self._path
        outside = graph.processors
        outside |= graph.before[path[stretch.first - 1]] if stretch.first else 0
        outside |= graph.after[path[stretch.last + 1]] if stretch.last + 1 < len(path) else 0
        return Wanted(inside=stretch.inside, outside=outside)

    def _sequence(self) -> tuple[float, list[Stretch]]:
        """The least sum, and its stretches. What ends on the processors is kept apart from what ends on an accelerator."""
        cpu_seconds = self._graph.problem.cpu_seconds
        most = min(self._graph.problem.accelerators, len(self._path))
        alone, together = (np.full((len(self._path) + 1, most + 1), inf) for _ in range(2))
        origin: list[list[Stretch | None]] = [[None] * (most + 1) for _ in range(len(self._path) + 1)]
        alone[0] = 0.0
        for place, node in enumerate(self._path):
            alone[place + 1] = np.minimum(alone[place] + self._between[place], together[place]) + cpu_seconds[node]
            if not self._ending[place] or not most:
                continue
            firsts = [stretch.first for stretch in self._ending[place]]
            seconds = np.array([stretch.seconds for stretch in self._ending[place]])
            reached = np.minimum(alone[firsts, :-1], together[firsts, :-1]) + seconds[:, None]
            chosen = reached.argmin(axis=0)
            together[place + 1, 1:] = reached.min(axis=0)
            origin[place + 1][1:] = [self._ending[place][at] for at in chosen]
        return _unwound(alone, together, origin, self._between)


def _unwound(
    alone: Floats,
    together: Floats,
    origin: list[list[Stretch | None]],
    between: Sequence[float],
) -> tuple[float, list[Stretch]]:
    """Walk back from the least of the last sums."""
    place = len(alone) - 1
    count = int(np.minimum(alone[place], together[place]).argmin())
    least = float(min(alone[place, count], together[place, count]))
    on_accelerator = bool(together[place, count] < alone[place, count])
    used = []
    while place:
        found = origin[place][count]
        if on_accelerator and found is not None:
            used.append(found)
            place, count = found.first, count - 1
            on_accelerator = bool(together[place, count] < alone[place, count])
        else:
            place -= 1
            on_accelerator = bool(together[place, count] < alone[place, count] + between[place])
    return least, used[::-1]


def _stretches(graph: Graph, path: Sequence[int], first: int) -> Iterator[Stretch]:
    """All that begin there and fit, with the compute of what they have at least."""
    problem = graph.problem
    hull, seconds, held = Hull(graph), 0.0, 0.0
    for last in range(first, len(path)):
        new = hull.add(1 << path[last])
        if new & graph.processors:
            return
        seconds += sum(problem.accelerator_seconds[node] for node in bits(new))
        held += sum(problem.size_bytes[node] for node in bits(new))
        if held > problem.memory_bytes * (1 + 1e-12):  # sums in another order may round to less
            return
        yield Stretch(first, last, hull.nodes, seconds)


def _between(graph: Graph, path: Sequence[int]) -> list[float]:
    """Before each node of the path: what nodes that were left out take if its neighbours are both on the processors."""
    fastest, found = graph.fastest_seconds(), [0.0]
    for earlier, later in pairwise(path):
        skipped = graph.after[earlier] & graph.before[later] & ~(1 << earlier | 1 << later)
        found.append(_longest(graph, skipped, fastest))
    return found


def _longest(graph: Graph, nodes: int, seconds: Sequence[float]) -> float:
    """The longest path through these nodes."""
    if not nodes:
        return 0.0
    tail: dict[int, float] = {}
    for node in graph.order:
        if nodes >> node & 1:
            tail[node] = seconds[node] + max((tail.get(other, 0.0) for other in graph.inputs[node]), default=0.0)
    return max(tail.values())


def thinned(graph: Graph, path: Sequence[int]) -> list[int]:
    """At most `LONGEST` nodes of the path and its ends, at equal steps of seconds, bytes and nodes passed."""
    if len(path) <= LONGEST:
        return list(path)
    fastest, sizes = graph.fastest_seconds(), graph.problem.size_bytes
    columns = np.array([(fastest[node], sizes[node], 1.0) for node in path])
    passed = np.cumsum((columns / np.maximum(columns.sum(axis=0), 1e-300)).sum(axis=1))
    steps = np.floor(passed / passed[-1] * (LONGEST - 2))
    kept = np.flatnonzero(np.diff(steps, prepend=-1.0))
    return [path[at] for at in sorted({0, *map(int, kept), len(path) - 1})]


def longest_path(graph: Graph, weights: Sequence[float]) -> list[int]:
    """From a node without inputs to one without consumers; of equal ones the one with more nodes."""
    tail, following, steps = [0.0] * len(weights), [-1] * len(weights), [0] * len(weights)
    for node in reversed(graph.order):
        if graph.consumers[node]:
            following[node] = max(graph.consumers[node], key=lambda other: (tail[other], steps[other]))
            steps[node] = steps[following[node]] + 1
        tail[node] = weights[node] + (tail[following[node]] if graph.consumers[node] else 0.0)
    path = [max((node for node in graph.order if not graph.inputs[node]), key=lambda node: (tail[node], steps[node]))]
    while following[path[-1]] >= 0:
        path.append(following[path[-1]])
    return path


def longest_seconds(graph: Graph) -> float:
    """Of all paths, where every node runs where it is fastest and nothing is moved: a bound at once."""
    return _longest(graph, (1 << graph.problem.nodes) - 1, graph.fastest_seconds())


def candidate_paths(graph: Graph) -> Iterator[list[int]]:
    """Paths that are long in seconds and in bytes, in several mixtures."""
    problem = graph.problem
    fastest = graph.fastest_seconds()
    total_bytes = sum(problem.size_bytes) or 1.0
    seen = set()
    for share in (0.0, 0.01, 0.1, 1.0, 10.0):
        price = share * sum(fastest) / total_bytes
        weights = [seconds + price * size for seconds, size in zip(fastest, problem.size_bytes, strict=True)]
        path = thinned(graph, longest_path(graph, weights))
        if tuple(path) not in seen:
            seen.add(tuple(path))
            yield path

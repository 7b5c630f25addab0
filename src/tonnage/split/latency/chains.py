"""Assignments to start from: the best way to cut one order of the nodes into subgraphs that run one after the other.

Nodes that must be together are chunks; chunks in a topological order are a chain; a stretch of a chain is contiguous. The
least sum of the stretches' times is found by dynamic programming over where they end and how many accelerators they use.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush

import numpy as np

from tonnage.split.latency.compiled import compiled
from tonnage.split.latency.graph import Graph, bits
from tonnage.split.latency.problem import CPU
from tonnage.split.latency.timing import Floats, Ints, Tables


def chain_starts(graph: Graph, tables: Tables) -> Iterator[Ints]:
    """Devices by node, one for each of several orders."""
    chunk_of = _chunks(graph)
    for keys in (_late(graph), _early(graph), _deep(graph)):
        yield _cut(graph, tables, chunk_of, _topological(graph, chunk_of, keys))


def _chunks(graph: Graph) -> list[int]:
    """The chunk of each node: classes that may share an accelerator, with what lies between their nodes."""
    from scipy.sparse import coo_array  # heavy, and only needed here
    from scipy.sparse.csgraph import connected_components

    nodes = graph.problem.nodes
    pairs = list(graph.problem.edges)
    for node in range(nodes):
        if not graph.processors >> node & 1:
            others = graph.group[node] >> node + 1 << node + 1  # a ring through the class makes it strongly connected
            pairs.append((node, next(bits(others or graph.group[node]))))
    rows, columns = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    links = coo_array((np.ones(len(pairs)), (rows, columns)), shape=(nodes, nodes)).tocsr()
    return [int(label) for label in connected_components(links, directed=True, connection="strong")[1]]


def _topological(graph: Graph, chunk_of: Sequence[int], keys: Sequence[float]) -> list[int]:
    """The chunks, each after those that it needs; of those that are free to run the one with the least key."""
    count = max(chunk_of, default=-1) + 1
    needs: list[set[int]] = [set() for _ in range(count)]
    frees: list[set[int]] = [set() for _ in range(count)]
    key = [-np.inf] * count
    for node, chunk in enumerate(chunk_of):
        key[chunk] = max(key[chunk], keys[node])
        for other in (chunk_of[consumer] for consumer in graph.consumers[node]):
            if other != chunk:
                needs[other].add(chunk)
                frees[chunk].add(other)
    left = [len(each) for each in needs]
    ready = [(key[chunk], chunk) for chunk in range(count) if not left[chunk]]
    heapify(ready)
    order = []
    while ready:
        chunk = heappop(ready)[1]
        order.append(chunk)
        for other in frees[chunk]:
            left[other] -= 1
            if not left[other]:
                heappush(ready, (key[other], other))
    return order


def _late(graph: Graph) -> list[float]:
    """Nodes as late as the longest way to the end lets them."""
    tail, own = [0.0] * graph.problem.nodes, graph.fastest_seconds()
    for node in reversed(graph.order):
        tail[node] = own[node] + max((tail[other] for other in graph.consumers[node]), default=0.0)
    return [-each for each in tail]


def _early(graph: Graph) -> list[float]:
    """Nodes as early as their inputs let them."""
    head, own = [0.0] * graph.problem.nodes, graph.fastest_seconds()
    for node in graph.order:
        head[node] = own[node] + max((head[other] for other in graph.inputs[node]), default=0.0)
    return head


def _deep(graph: Graph) -> list[float]:
    """Nodes in the order of a depth-first visit from the ends, so that branches stay together."""
    place = [-1.0] * graph.problem.nodes
    visited = 0
    waiting = [node for node in graph.order if not graph.consumers[node]]
    while waiting:
        node = waiting[-1]
        missing = [other for other in graph.inputs[node] if place[other] < 0]
        if missing:
            waiting.extend(missing)
            continue
        waiting.pop()
        if place[node] < 0:
            place[node] = visited
            visited += 1
    return place


def _cut(graph: Graph, tables: Tables, chunk_of: Sequence[int], order: Sequence[int]) -> Ints:
    """The best cut of one order, as devices by node."""
    problem = graph.problem
    position = {chunk: place for place, chunk in enumerate(order)}
    place_of = np.array([position[chunk] for chunk in chunk_of], dtype=np.int64)
    sorted_nodes = np.argsort(place_of, kind="stable").astype(np.int64)
    starts = np.searchsorted(place_of[sorted_nodes], np.arange(len(order) + 1)).astype(np.int64)
    sizes = np.array(problem.size_bytes)
    sizes[list(bits(graph.processors))] = np.inf
    return _chain(tables, place_of, sorted_nodes, starts, sizes, problem.memory_bytes, problem.accelerators)


@compiled
def _chain(
    tables: Tables, place_of: Ints, nodes: Ints, starts: Ints, sizes: Floats, memory: float, accelerators: int
) -> Ints:
    places = len(starts) - 1
    last = place_of.copy()  # where the last consumer of a node stands
    for node in range(len(place_of)):
        for at in range(tables.consumers_start[node], tables.consumers_start[node + 1]):
            last[node] = max(last[node], place_of[tables.consumers[at]])
    best = np.full((places + 1, accelerators + 1), np.inf)
    origin = np.full((places + 1, accelerators + 1), -1)
    best[0] = 0.0
    ends = np.zeros(places + 1)  # transfers out that end with the stretch up to here
    taken = np.full(len(place_of), -1)
    for first in range(places):
        alone = 0.0
        for at in range(starts[first], starts[first + 1]):
            alone += tables.cpu[nodes[at]]
        for used in range(accelerators + 1):
            if best[first, used] + alone < best[first + 1, used]:
                best[first + 1, used] = best[first, used] + alone
                origin[first + 1, used] = -1
        ends[:] = 0.0
        held, busy, leaving = 0.0, 0.0, 0.0
        for place in range(first, places):
            for at in range(starts[place], starts[place + 1]):
                node = nodes[at]
                held += sizes[node]
                busy += tables.accelerator[node]
                if last[node] > place:
                    leaving += tables.transfer[node]
                    ends[last[node]] += tables.transfer[node]
                for where in range(tables.inputs_start[node], tables.inputs_start[node + 1]):
                    source = tables.inputs[where]
                    if place_of[source] < first and taken[source] != first:
                        taken[source] = first
                        busy += tables.transfer[source]
            if held > memory:
                break
            leaving -= ends[place]
            for used in range(accelerators):
                value = best[first, used] + busy + leaving
                if value < best[place + 1, used + 1]:
                    best[place + 1, used + 1] = value
                    origin[place + 1, used + 1] = first
    return _unwind(best, origin, nodes, starts, accelerators)


@compiled
def _unwind(best: Floats, origin: Ints, nodes: Ints, starts: Ints, accelerators: int) -> Ints:
    devices = np.full(len(nodes), CPU)
    place, used, device = len(starts) - 1, 0, 0
    for count in range(accelerators + 1):
        if best[place, count] < best[place, used]:
            used = count
    while place > 0:
        first = origin[place, used]
        if first < 0:
            place -= 1
            continue
        for at in range(starts[first], starts[place]):
            devices[nodes[at]] = device
        device += 1
        place = first
        used -= 1
    return devices

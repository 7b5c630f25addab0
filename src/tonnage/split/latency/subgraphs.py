"""What a subgraph takes at least, if it has some nodes and lacks others.

The nodes in between are chosen as a least cut chooses them: a node inside costs its seconds; a tensor whose producer is on
one side and that has a consumer on the other costs its transfer, once. Memory is priced: of all subgraphs that fit, none is
below the least cost with a price per byte beyond the limit (Lagrange), whatever the price. Where the choice exceeds the
memory or is not contiguous, the question is split by what it would need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

from tonnage.split.latency.flow import SINK, SOURCE, Arc, least_cut
from tonnage.split.latency.graph import Graph, bits

MOST_PRICES = 8  # of memory, tried for one subgraph
MOST_PARTS = 200  # of one question
ENDLESS = 1e300


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Sets of nodes as bits. What is inside is closed; all that cannot be on an accelerator is outside."""

    inside: int
    outside: int


@dataclass(slots=True, kw_only=True)
class Effort:
    """What may still be spent on cuts: visits of nodes, and the caller's patience."""

    keep_going: Callable[[], bool]
    visits: int

    def spend(self, nodes: int) -> bool:
        self.visits -= nodes
        return self.visits > 0 and self.keep_going()


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Nodes of a subgraph, its seconds and its bytes beyond the memory."""

    nodes: int
    seconds: float
    excess_bytes: float

    def at(self, price: float) -> float:
        return self.seconds + price * self.excess_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxed:
    """A time that no subgraph beats, a choice of nodes, and those of which the choice says nothing."""

    seconds: float
    nodes: int
    in_doubt: int


def seconds_between(graph: Graph, wanted: Wanted) -> float:
    """Compute of what is inside, and its tensors to and from what is outside; nodes that are neither cost nothing."""
    problem = graph.problem
    seconds, fed = 0.0, 0
    for node in bits(wanted.inside):
        seconds += problem.accelerator_seconds[node]
        if any(wanted.outside >> other & 1 for other in graph.consumers[node]):
            seconds += problem.transfer_seconds[node]
        for other in graph.inputs[node]:
            fed |= 1 << other
    return seconds + sum(problem.transfer_seconds[node] for node in bits(fed & wanted.outside))


def least_seconds(graph: Graph, wanted: Wanted, effort: Effort) -> float:
    """A time that no such subgraph beats; the very least, unless that takes too many parts or too much effort.

    Best first: a part of the subgraphs (those that have and lack certain nodes) is split until the cheapest choice of the
    least part is itself a contiguous subgraph that fits.
    """
    first = _relaxed(graph, wanted)
    parts, count = [(first.seconds, 0, wanted, first)], 1
    while parts and count < MOST_PARTS and effort.spend(graph.problem.nodes):
        seconds, _, part, relaxed = parts[0]
        divided = [*_divided(graph, part, relaxed)]
        if not divided:
            return seconds
        heappop(parts)
        for each in divided:
            least = _relaxed(graph, each)
            if least.seconds < ENDLESS:
                heappush(parts, (max(least.seconds, seconds), count, each, least))
                count += 1
    return parts[0][0] if parts else ENDLESS


def _relaxed(graph: Graph, wanted: Wanted) -> Relaxed:
    """With a price on memory instead of a limit, and contiguous or not."""
    large = _cheapest(graph, wanted, 0.0)
    if large.excess_bytes <= 0:
        return Relaxed(seconds=large.seconds, nodes=large.nodes, in_doubt=0)
    small = _choice(graph, wanted.inside)
    if small.excess_bytes > 0:
        return Relaxed(seconds=ENDLESS, nodes=0, in_doubt=0)
    least = large.seconds
    for _ in range(MOST_PRICES):  # where the lines of the two choices meet is the highest that the bound can be
        price = max(small.seconds - large.seconds, 0.0) / (large.excess_bytes - small.excess_bytes)
        middle = _cheapest(graph, wanted, price)
        least = max(least, middle.at(price))
        if middle.at(price) >= min(small.at(price), large.at(price)) * (1 - 1e-12):
            break
        large, small = (middle, small) if middle.excess_bytes > 0 else (large, middle)
    in_doubt = large.nodes ^ small.nodes if small.seconds > least * (1 + 1e-12) else 0
    return Relaxed(seconds=least, nodes=small.nodes, in_doubt=in_doubt)


def _divided(graph: Graph, wanted: Wanted, relaxed: Relaxed) -> Iterator[Wanted]:
    """Smaller parts that hold all subgraphs of this one; none if its choice is one of them."""
    if relaxed.in_doubt:
        node = max(bits(relaxed.in_doubt), key=lambda node: graph.problem.size_bytes[node])
        yield from _with(graph, wanted, node)
        yield Wanted(inside=wanted.inside, outside=wanted.outside | 1 << node)
        return
    missing = graph.closed(relaxed.nodes) & ~relaxed.nodes
    if missing:  # a contiguous subgraph without this node lacks all before it or all behind it
        node = next(bits(missing))
        yield from _with(graph, wanted, node)
        for side in (graph.before[node], graph.after[node]):
            if not side & wanted.inside:
                yield Wanted(inside=wanted.inside, outside=wanted.outside | side)


def _with(graph: Graph, wanted: Wanted, node: int) -> Iterator[Wanted]:
    inside = graph.joined(wanted.inside, node)
    if not inside & wanted.outside:
        yield Wanted(inside=inside, outside=wanted.outside)


def _choice(graph: Graph, nodes: int) -> Choice:
    everything = (1 << graph.problem.nodes) - 1
    seconds = seconds_between(graph, Wanted(inside=nodes, outside=everything & ~nodes))
    return Choice(nodes=nodes, seconds=seconds, excess_bytes=graph.size_bytes(nodes) - graph.problem.memory_bytes)


def _cheapest(graph: Graph, wanted: Wanted, price: float) -> Choice:
    """The subgraph that is cheapest when each of its bytes costs the price."""
    outside = wanted.outside
    everything = (1 << graph.problem.nodes) - 1
    for node in bits(everything & ~wanted.inside & ~outside):
        if graph.hull[node] & wanted.outside:
            outside |= 1 << node
    free = list(bits(everything & ~wanted.inside & ~outside))
    if not free:
        return _choice(graph, wanted.inside)
    vertex = [SINK] * graph.problem.nodes
    for node in bits(wanted.inside):
        vertex[node] = SOURCE
    for number, node in enumerate(free, start=2):
        vertex[node] = number
    arcs = [*_own_arcs(graph, free, vertex, price)]
    vertices = _add_tensors(graph, vertex, arcs, 2 + len(free))
    _, near = least_cut(vertices, arcs)
    chosen = wanted.inside
    for node in free:
        chosen |= near[vertex[node]] << node
    return _choice(graph, chosen)


def _own_arcs(graph: Graph, free: list[int], vertex: list[int], price: float) -> Iterator[Arc]:
    """Nodes by themselves, and rings that keep classes together."""
    problem = graph.problem
    for node in free:
        yield vertex[node], SINK, problem.accelerator_seconds[node] + price * problem.size_bytes[node]
        others = graph.group[node] >> node + 1 << node + 1
        following = next(bits(others or graph.group[node]))
        if following != node:
            yield vertex[node], vertex[following], ENDLESS


def _add_tensors(graph: Graph, vertex: list[int], arcs: list[Arc], vertices: int) -> int:
    """Both directions of every tensor; a vertex of its own where it has several consumers to be told apart."""
    for node, consumers in enumerate(graph.consumers):
        cost, own = graph.problem.transfer_seconds[node], vertex[node]
        ends = {vertex[other] for other in consumers}
        if not cost or ends <= {own}:
            continue
        if own != SOURCE:  # taken in
            vertices += _join(arcs, sorted(ends - {SINK}), own, cost, vertices, taken_in=True)
        if own != SINK:
            vertices += _join(arcs, sorted(ends - {SOURCE}), own, cost, vertices, taken_in=False)
    return vertices


def _join(arcs: list[Arc], ends: list[int], own: int, cost: float, new: int, *, taken_in: bool) -> int:
    """One tensor in one direction; returns how many vertices it added."""
    ends = [end for end in ends if end != own]
    fixed = SOURCE if taken_in else SINK
    if fixed in ends:
        ends = [fixed]
    if len(ends) <= 1:
        arcs += [(end, own, cost) if taken_in else (own, end, cost) for end in ends]
        return 0
    arcs.append((new, own, cost) if taken_in else (own, new, cost))
    arcs += [(end, new, ENDLESS) if taken_in else (new, end, ENDLESS) for end in ends]
    return 1

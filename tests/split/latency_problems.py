"""Small latency problems for tests, and the best of all their assignments."""

from itertools import product
from math import inf

from hypothesis import strategies as st

from tonnage.split.latency.check import broken_rules, latency_of
from tonnage.split.latency.problem import LatencyProblem

COSTS = st.sampled_from([0.0, 0.0, 1.0, 2.0, 3.5, 7.25, 0.1])


def chain(count: int, *, accelerators: int, memory_bytes: float, transfer: float = 1.0) -> LatencyProblem:
    """Nodes of 1 byte in a row, 10 s each on the processors and 1 s on an accelerator."""
    return LatencyProblem(
        accelerator_seconds=(1.0,) * count,
        cpu_seconds=(10.0,) * count,
        size_bytes=(1.0,) * count,
        transfer_seconds=(transfer,) * count,
        edges=tuple((node, node + 1) for node in range(count - 1)),
        classes=tuple(range(count)),
        accelerators=accelerators,
        memory_bytes=memory_bytes,
    )


@st.composite
def problems(draw: st.DrawFn, most_nodes: int = 6) -> LatencyProblem:
    """Any graph, with nodes that are free, unsupported, too large or of one class."""
    count = draw(st.integers(1, most_nodes))
    names = draw(st.permutations(range(count)))
    pairs = [(names[a], names[b]) for a in range(count) for b in range(a + 1, count)]
    column = st.lists(COSTS, min_size=count, max_size=count).map(tuple)
    supported = draw(st.lists(st.integers(0, 7), min_size=count, max_size=count))
    return LatencyProblem(
        accelerator_seconds=tuple(cost if s else inf for cost, s in zip(draw(column), supported, strict=True)),
        cpu_seconds=tuple(4 * cost for cost in draw(column)),
        size_bytes=draw(column),
        transfer_seconds=draw(column),
        edges=tuple(pair for pair in pairs if draw(st.integers(0, 2)) == 0),
        classes=tuple(draw(st.lists(st.integers(0, 2 * count), min_size=count, max_size=count))),
        accelerators=draw(st.integers(0, 3)),
        memory_bytes=draw(st.sampled_from([0.0, 1.0, 4.0, 6.0, 9.0, 100.0])),
    )


def least_latency(problem: LatencyProblem) -> float:
    """Of all assignments that break no rule."""
    devices = range(-1, problem.accelerators)
    valid = (each for each in product(devices, repeat=problem.nodes) if not broken_rules(problem, each))
    return min(latency_of(problem, each) for each in valid)

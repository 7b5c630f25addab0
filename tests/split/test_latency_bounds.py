"""Every bound by itself against all assignments or all subgraphs of small networks."""

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from latency_problems import chain, least_latency, problems

from tonnage.split.latency import bounds
from tonnage.split.latency.bounds import PathBound, candidate_paths, longest_seconds, thinned
from tonnage.split.latency.check import broken_rules, latency_of
from tonnage.split.latency.graph import Graph, bits, graph_of
from tonnage.split.latency.loads import load_bound
from tonnage.split.latency.problem import LatencyProblem
from tonnage.split.latency.subgraphs import ENDLESS, Effort, Wanted, least_seconds


def effort() -> Effort:
    return Effort(keep_going=lambda: True, visits=1_000_000)


def subgraphs(graph: Graph, wanted: Wanted) -> list[set[int]]:
    """Every contiguous one that fits, has what is wanted and lacks what is not."""
    problem = graph.problem
    free = [*bits((1 << problem.nodes) - 1 & ~wanted.inside & ~wanted.outside)]
    chosen = [{*bits(wanted.inside), *more} for count in range(len(free) + 1) for more in combinations(free, count)]
    return [nodes for nodes in chosen if not broken_rules(problem, devices(problem, nodes))]


def devices(problem: LatencyProblem, nodes: set[int]) -> list[int]:
    return [0 if node in nodes else -1 for node in range(problem.nodes)]


@given(problem=problems(most_nodes=5))
@settings(max_examples=150, deadline=None)
def test_no_assignment_beats_any_of_the_bounds(problem: LatencyProblem) -> None:
    graph, least = graph_of(problem), least_latency(problem)
    paths = [PathBound(graph, path).run(effort(), goal=1e9) for path in candidate_paths(graph)]
    loads = load_bound(graph, sum(problem.cpu_seconds), lambda: True)
    assert max(*paths, loads, longest_seconds(graph)) <= least * (1 + 1e-9)


@given(problem=problems(most_nodes=6), start=st.integers(0, 5))
@settings(max_examples=150, deadline=None)
def test_the_least_time_of_a_subgraph_is_that_of_the_best_of_all(problem: LatencyProblem, start: int) -> None:
    problem = replace(problem, accelerators=1, cpu_seconds=(0.0,) * problem.nodes)
    graph = graph_of(problem)
    wanted = Wanted(inside=graph.hull[start % problem.nodes], outside=graph.processors)
    if wanted.inside & wanted.outside:
        return
    times = [latency_of(problem, devices(problem, nodes)) for nodes in subgraphs(graph, wanted)]
    assert least_seconds(graph, wanted, effort()) == pytest.approx(min(times, default=ENDLESS))


@pytest.mark.parametrize("most", [5, 8, 10])
def test_some_nodes_of_a_long_path_give_a_bound_too(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "LONGEST", most)
    problem = chain(12, accelerators=2, memory_bytes=4.0)
    graph = graph_of(problem)
    path = thinned(graph, range(12))
    assert most - 2 <= len(path) <= most
    assert 8 <= PathBound(graph, path).run(effort(), goal=1e9) <= 8 + 2 + 1 + 4 * 10


def test_wide_networks_are_bound_by_what_accelerators_do_together() -> None:
    problem = replace(chain(12, accelerators=3, memory_bytes=12.0), edges=())
    assert load_bound(graph_of(problem), 10.0, lambda: True) == pytest.approx(12 / 3, rel=1e-3)

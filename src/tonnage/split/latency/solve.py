"""The solver of the latency target: search from above, bounds from below, until they meet or time is up."""

from __future__ import annotations

from collections.abc import Callable

from tonnage.split.latency.bounds import PathBound, candidate_paths, longest_seconds
from tonnage.split.latency.exact import Verdict, can_ask, faster_than
from tonnage.split.latency.graph import Graph, graph_of
from tonnage.split.latency.loads import load_bound
from tonnage.split.latency.problem import LatencyAnswer, LatencyProblem
from tonnage.split.latency.search import Search
from tonnage.split.latency.subgraphs import Effort

PROOF = 1e-6  # a value this close to the bound, as a part of it, counts as proven
VISITS = 1_500_000  # of nodes, in the cuts of all paths
SMALLEST_STEP = 1 / 32  # of what is left between bound and value: where a question of this step fails, no more is asked


def solve_latency(
    problem: LatencyProblem, keep_going: Callable[[], bool] = lambda: True, *, seed: int = 1
) -> LatencyAnswer:
    """The best assignment within the moves and questions that the solvers are given, or until `keep_going` says no."""
    graph = graph_of(problem)
    if not problem.nodes:
        return LatencyAnswer(value=0.0, bound=0.0, assignment=(), proven=True)
    search = Search(graph, seed)
    search.start(keep_going)
    bound = _bounds(graph, search.value, keep_going)
    if search.value > _reached(bound):
        search.run(keep_going, goal=_reached(bound))
        bound = _close(graph, search, bound, keep_going)
    return LatencyAnswer(
        value=search.value,
        bound=min(bound, search.value),
        assignment=tuple(int(device) for device in search.best),
        proven=search.value <= _reached(bound),
    )


def _reached(bound: float) -> float:
    """The largest value that the bound proves."""
    return bound * (1 + PROOF)


def _bounds(graph: Graph, value: float, keep_going: Callable[[], bool]) -> float:
    """The best of several paths, which share the effort, and of the loads."""
    best = longest_seconds(graph)
    effort = Effort(keep_going=keep_going, visits=VISITS)
    for path in candidate_paths(graph):
        if value <= _reached(best):
            break
        best = max(best, PathBound(graph, path).run(effort, goal=value))
    if value > _reached(best) and keep_going():
        best = max(best, load_bound(graph, value, keep_going))
    return best


def _close(graph: Graph, search: Search, bound: float, keep_going: Callable[[], bool]) -> float:
    """Ask whether a part of what is left between bound and value can be gained; smaller parts where that is too hard."""
    step = 1.0
    while search.value > _reached(bound) and step >= SMALLEST_STEP and can_ask(graph) and keep_going():
        limit = bound + step * (search.value * (1 - PROOF / 2) - bound)
        verdict, devices = faster_than(graph, limit, keep_going)
        if verdict is Verdict.NONE:
            bound = limit
        elif verdict is Verdict.FOUND and search.offer(devices):
            search.run(keep_going, goal=_reached(bound))
        else:
            step /= 2
    return bound

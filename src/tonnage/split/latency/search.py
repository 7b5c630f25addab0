"""Good assignments: chains cut well, then simulated annealing on the exact latency.

The number of moves is fixed by the size of the network, not by a clock: the same problem has the same answer everywhere,
unless `keep_going` ends the search early.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tonnage.split.latency.chains import chain_starts
from tonnage.split.latency.compiled import COMPILED
from tonnage.split.latency.graph import Graph, bits
from tonnage.split.latency.moves import Groups, Pace, State, anneal
from tonnage.split.latency.problem import CPU
from tonnage.split.latency.timing import Ints, scratch_for, tables_of, timed

VISITS = 5_000_000_000 if COMPILED else 3_000_000  # of nodes and edges, in all moves of one search
MOST_MOVES = 60_000 if COMPILED else 300  # for each class
ROUNDS = 60  # temperatures from the first to the last
HOTTEST, COLDEST = 0.03, 1e-3  # temperatures, as parts of the latency to start from
# Weight of work that delays nothing, and moves of 100 that begin where the latency arises: networks differ in their needs.
TEMPERS = ((0.002, 0), (0.02, 50), (0.0, 0), (0.002, 50), (0.02, 0), (0.0, 50))


class Search:
    """Keeps the best assignment that it has seen."""

    def __init__(self, graph: Graph, seed: int = 1) -> None:
        self._graph = graph
        self._tables = tables_of(graph)
        self._groups = _groups_of(graph)
        self._scratch = scratch_for(graph.problem.accelerators, graph.problem.nodes)
        self._numbers = np.array([seed, 0], dtype=np.int64)
        self.best: Ints = np.full(graph.problem.nodes, CPU, dtype=np.int64)
        self.value = self._latency(self.best)
        self._starts = [self.best]

    def offer(self, devices: Ints) -> bool:
        """Take an assignment that keeps the other rules if it is faster."""
        value = self._latency(devices)
        if value < self.value:
            self.best, self.value = devices.copy(), value
            return True
        return False

    def start(self, keep_going: Callable[[], bool]) -> None:
        """Look at chains, which often are all there is to find."""
        if len(self._groups.movable) and keep_going():
            self._starts += chain_starts(self._graph, self._tables)
            for devices in self._starts:
                self.offer(devices)
            self._starts.sort(key=self._latency)

    def run(self, keep_going: Callable[[], bool], goal: float = 0.0) -> None:
        """Until `keep_going` says no, the goal is reached or all moves are made."""
        for turn, (work_weight, focus) in enumerate(TEMPERS if len(self._groups.movable) else ()):
            self._anneal(self._starts[turn % len(self._starts)], work_weight, focus, keep_going, goal)
            self._anneal(self.best, work_weight, focus, keep_going, goal)

    def _anneal(self, start: Ints, work_weight: float, focus: int, keep_going: Callable[[], bool], goal: float) -> None:
        problem = self._graph.problem
        visits = problem.nodes + len(problem.edges)
        moves = int(min(VISITS / visits, MOST_MOVES * len(self._groups.size)) / ROUNDS / (2 * len(TEMPERS))) + 1
        state = self._state(start, work_weight)
        for temperature in np.geomspace(HOTTEST, COLDEST, ROUNDS) * max(state.values[0], 1e-300):
            if self.value <= goal or not keep_going():
                return
            pace = Pace(moves, float(temperature), work_weight, focus)
            anneal(self._tables, self._groups, state, pace, problem.memory_bytes, self._scratch)
            self.offer(state.best)

    def _state(self, start: Ints, work_weight: float) -> State:
        problem = self._graph.problem
        latency, work = timed(self._tables, start, self._scratch)
        held = np.zeros(problem.accelerators)
        for node, device in enumerate(start):
            if device >= 0:
                held[device] += problem.size_bytes[node]
        count = len(self._groups.size)
        return State(
            devices=start.copy(),
            held=held,
            best=start.copy(),
            numbers=self._numbers,
            moved=np.zeros(count, dtype=np.int64),
            old=np.zeros(count, dtype=np.int64),
            goal=np.zeros(count, dtype=np.int64),
            critical=np.zeros(problem.accelerators + problem.nodes + 1, dtype=np.int64),
            marked=np.full(count, -1, dtype=np.int64),
            values=np.array([latency, latency + work_weight * work, latency]),
        )

    def _latency(self, devices: Ints) -> float:
        return float(timed(self._tables, devices, self._scratch)[0])


def _groups_of(graph: Graph) -> Groups:
    problem = graph.problem
    numbers = {name: number for number, name in enumerate(dict.fromkeys(problem.classes))}
    of = [numbers[name] for name in problem.classes]
    members: list[list[int]] = [[] for _ in numbers]
    for node, group in enumerate(of):
        members[group].append(node)
    left_out = {of[node] for node in bits(graph.processors)}
    sizes = [
        np.inf if group in left_out else sum(problem.size_bytes[n] for n in each) for group, each in enumerate(members)
    ]
    crews = _crews(graph, of)
    return Groups(
        of=np.array(of, dtype=np.int64),
        nodes=_joined(members),
        nodes_start=_starts(members),
        node_size=np.array(problem.size_bytes, dtype=np.float64),
        size=np.array(sizes, dtype=np.float64),
        movable=np.array([group for group in range(len(members)) if group not in left_out], dtype=np.int64),
        crew=_joined(crews),
        crew_start=_starts(crews),
    )


def _crews(graph: Graph, of: Sequence[int]) -> list[list[int]]:
    """For each group the free nodes that serve it alone: weights that feed it, ends that hang on it."""
    master: dict[int, int] = {}
    _serve(graph, master, reversed_order=True)
    _serve(graph, master, reversed_order=False)
    crews: list[dict[int, None]] = [{} for _ in range(max(of, default=-1) + 1)]
    for node, served in master.items():
        if of[node] != of[served]:
            crews[of[served]][of[node]] = None
    return [list(crew) for crew in crews]


def _serve(graph: Graph, master: dict[int, int], *, reversed_order: bool) -> None:
    """Follow free nodes with one neighbour on the one side and only free ones on the other."""
    problem = graph.problem
    far, near = (graph.inputs, graph.consumers) if reversed_order else (graph.consumers, graph.inputs)
    order = graph.order if reversed_order else graph.order[::-1]
    servants = set()
    for node in order:
        free = not problem.cpu_seconds[node] and not graph.processors >> node & 1
        if free and len(near[node]) == 1 and all(other in servants for other in far[node]):
            servants.add(node)
    for node in reversed(order):
        if node in servants:
            served = near[node][0]
            master[node] = master[served] if served in servants else served


def _joined(lists: Sequence[Sequence[int]]) -> Ints:
    return np.array([member for each in lists for member in each], dtype=np.int64)


def _starts(lists: Sequence[Sequence[int]]) -> Ints:
    return np.concatenate([[0], np.cumsum([len(each) for each in lists])]).astype(np.int64)

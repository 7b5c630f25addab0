"""The least cut of a small network, by Dinic's algorithm on seconds as they are (every step empties an edge exactly)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tonnage.split.latency.compiled import compiled
from tonnage.split.latency.timing import Floats, Ints

SOURCE, SINK = 0, 1
Arc = tuple[int, int, float]  # from, to, what cutting it costs


def least_cut(vertices: int, arcs: Sequence[Arc]) -> tuple[float, list[bool]]:
    """The cost of a cut that no cut is below, and the vertices on the side of the source."""
    ends = np.array([(first, second) for first, second, _ in arcs], dtype=np.int64).reshape(-1, 2)
    capacity = np.zeros(2 * len(arcs))
    capacity[0::2] = [cost for _, _, cost in arcs]
    tails = np.column_stack([ends[:, 0], ends[:, 1]]).ravel()  # arc 2a and its way back 2a+1
    heads = np.column_stack([ends[:, 1], ends[:, 0]]).ravel()
    order = np.argsort(tails, kind="stable").astype(np.int64)
    starts = np.searchsorted(tails[order], np.arange(vertices + 1)).astype(np.int64)
    flow, level = _dinic(heads, capacity, order, starts)
    return float(flow), [bool(each >= 0) for each in level]


@compiled
def _dinic(heads: Ints, capacity: Floats, order: Ints, starts: Ints) -> tuple[float, Ints]:
    flow = 0.0
    level = _levels(heads, capacity, order, starts)
    while level[SINK] >= 0:
        flow += _blocking(heads, capacity, order, starts, level)
        level = _levels(heads, capacity, order, starts)
    return flow, level


@compiled
def _levels(heads: Ints, capacity: Floats, order: Ints, starts: Ints) -> Ints:
    """Steps from the source along arcs with room; -1 where none leads."""
    level = np.full(len(starts) - 1, -1)
    queue = np.zeros(len(starts) - 1, dtype=np.int64)
    level[SOURCE] = 0
    filled, done = 1, 0
    while done < filled:
        vertex = queue[done]
        done += 1
        for at in range(starts[vertex], starts[vertex + 1]):
            other = heads[order[at]]
            if capacity[order[at]] > 0 and level[other] < 0:
                level[other] = level[vertex] + 1
                queue[filled] = other
                filled += 1
    return level


@compiled
def _blocking(heads: Ints, capacity: Floats, order: Ints, starts: Ints, level: Ints) -> float:
    """Fill paths that gain a level with each step until there is none."""
    following = starts[:-1].copy()
    path = np.zeros(len(starts), dtype=np.int64)
    flow, length, vertex = 0.0, 0, SOURCE
    while True:
        if vertex == SINK:
            room = capacity[path[:length]].min()
            flow += room
            for step in range(length - 1, -1, -1):
                capacity[path[step]] -= room
                capacity[path[step] ^ 1] += room
                if capacity[path[step]] <= 0:
                    length = step
            vertex = heads[path[length] ^ 1]
        elif following[vertex] == starts[vertex + 1]:
            if length == 0:
                return flow
            level[vertex] = -1  # leads nowhere
            length -= 1
            vertex = heads[path[length] ^ 1]
        else:
            arc = order[following[vertex]]
            other = heads[arc]
            if capacity[arc] > 0 and level[other] == level[vertex] + 1:
                path[length] = arc
                length += 1
                vertex = other
            else:
                following[vertex] += 1

"""Strongly connected parts of a directed graph, and graphs made of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def strong_parts(followers: Sequence[Collection[int]]) -> tuple[list[int], int]:
    """The part of each node (Tarjan's algorithm), and how many there are; parts are numbered in a topological order."""
    count, order, parts = len(followers), 0, 0
    targets = [sorted(each) for each in followers]
    found, low, part = [-1] * count, [0] * count, [-1] * count
    stack: list[int] = []
    for root in range(count):
        work = [(root, 0)] if found[root] < 0 else []
        while work:
            node, at = work.pop()
            if at == 0:
                found[node] = low[node] = order
                order += 1
                stack.append(node)
            while at < len(targets[node]) and found[targets[node][at]] >= 0:
                at += 1
            if at < len(targets[node]):
                work += [(node, at + 1), (targets[node][at], 0)]
                continue
            low[node] = min([low[node], *(low[target] for target in targets[node] if part[target] < 0)])
            if low[node] == found[node]:
                while part[node] < 0:
                    part[stack.pop()] = parts
                parts += 1
    return [parts - 1 - each for each in part], parts


def quotient(followers: Sequence[Collection[int]], part_of: Sequence[int], parts: int) -> tuple[tuple[int, ...], ...]:
    """Which part follows which."""
    above: list[set[int]] = [set() for _ in range(parts)]
    for source, targets in enumerate(followers):
        above[part_of[source]].update(part_of[target] for target in targets)
    return tuple(tuple(sorted(each - {part})) for part, each in enumerate(above))

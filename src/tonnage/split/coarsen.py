"""Fewer groups, and no distribution lost that could be better: groups are joined where being apart never helps.

Two rules, applied until nothing changes. Both hold for contiguous distributions and any loads of `problem.py`.

1. A group z without work or memory that has one leader u joins it if the nets of {u, z} alone weigh no less than all nets
   of z without u: z moves to u's device, which saves the former and pays at most the latter, as does the device it left.
2. Likewise with its only follower.

With a cap there is a third: a net that no device can cut below the cap keeps its groups together.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import inf

import numpy as np

from tonnage.split.problem import Floats, Net, Problem
from tonnage.split.strong_parts import quotient, strong_parts


def coarsen(problem: Problem, cap: float = inf) -> Problem:
    """The same problem with fewer groups."""
    while True:
        joined = _joined(problem, cap)
        if joined.size == problem.size:
            return problem
        problem = joined


def _joined(problem: Problem, cap: float) -> Problem:
    free = _free(problem)
    links = uncuttable(problem, cap)
    taken: set[int] = set()

    def join(first: int, second: int) -> None:
        """In one round no group takes part twice, since each join changes the nets of both."""
        if first not in taken and second not in taken:
            links.append((first, second))
            taken.update((first, second))

    nets = _nets_of_groups(problem)
    for group in np.flatnonzero(free):
        neighbour = _better_together(problem, nets, int(group))
        if neighbour is not None:
            join(neighbour, int(group))
    return contract(problem, links) if links else problem


def _free(problem: Problem) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Groups that cost nothing by themselves. Memory costs nothing where any device holds all of it."""
    free = np.all([each.seconds == 0 for each in problem.classes], axis=0)
    total = problem.memory_bytes.sum()
    if any(total > each.memory_bytes for each in problem.classes) or len(problem.stash_bytes):
        free &= problem.memory_bytes == 0
        if len(problem.stash_bytes):
            free &= problem.stash_bytes == 0
    for costs in (problem.sync_bytes, problem.unshared):  # of replicas
        if len(costs):
            free &= costs == 0
    return np.asarray(free, dtype=np.bool_)


def uncuttable(problem: Problem, cap: float) -> list[tuple[int, int]]:
    """Pairs of groups that no device can do without each other below the cap: the members of nets that are too heavy."""
    heaviest = _heaviest(problem, cap)
    heavy = [net.members for net in problem.nets if net.weight + net.back > heaviest]
    return [(members[0], other) for members in heavy for other in members[1:]]


def _heaviest(problem: Problem, cap: float) -> float:
    """What a net may weigh and still be cut with loads up to the cap, whichever devices hold its ends."""
    if cap == inf or problem.overlaps:
        return inf
    cheapest = sorted(
        min(each.seconds_per_unit, each.seconds_per_unit_out) for each in problem.classes for _ in range(each.count)
    )
    # Of two devices that share a net at most one can be of the class that moves it for nothing.
    dearest_pair = cheapest[1] if len(cheapest) > 1 else 0.0
    return cap * (1 + 1e-9) / dearest_pair if dearest_pair > 0 else inf


def _nets_of_groups(problem: Problem) -> list[list[Net]]:
    found: list[list[Net]] = [[] for _ in range(problem.size)]
    for net in problem.nets:
        for group in net.members:
            found[group].append(net)
    return found


def _better_together(problem: Problem, nets: list[list[Net]], group: int) -> int | None:
    leaders, followers = problem.leaders[group], problem.followers[group]
    for side in (leaders, followers):
        if len(side) == 1 and _outweighs(nets[group], side[0]):
            return side[0]
    return None


def _outweighs(nets: Iterable[Net], neighbour: int) -> bool:
    """Whether what joins two groups alone weighs no less than what the first shares with others but not with the second."""
    inside, outside = np.zeros(2), np.zeros(2)
    for net in nets:
        weight = np.array([net.weight, net.back])
        if neighbour not in net.members:
            outside += weight
        elif len(net.members) == 2:
            inside += weight
    return bool((inside >= outside).all())


def contract(problem: Problem, links: Iterable[tuple[int, int]]) -> Problem:
    """Linked groups become one, and so do all that would then wait for each other in a circle."""
    both: list[set[int]] = [set(each) for each in problem.followers]
    for first, second in links:
        both[first].add(second)
        both[second].add(first)
    part_of, parts = strong_parts(both)
    members: list[list[int]] = [[] for _ in range(parts)]
    for group, part in enumerate(part_of):
        members[part] += problem.members[group]

    def summed(values: Floats) -> Floats:
        return np.bincount(part_of, weights=values, minlength=parts).astype(np.float64) if len(values) else values

    return replace(
        problem,
        members=tuple(tuple(each) for each in members),
        followers=quotient(problem.followers, part_of, parts),
        nets=_remapped(problem.nets, part_of),
        memory_bytes=summed(problem.memory_bytes),
        stash_bytes=summed(problem.stash_bytes),
        sync_bytes=summed(problem.sync_bytes),
        unshared=summed(problem.unshared),
        classes=tuple(replace(each, seconds=summed(each.seconds)) for each in problem.classes),
    )


def _remapped(nets: Iterable[Net], part_of: list[int]) -> tuple[Net, ...]:
    found: dict[tuple[int, ...], list[float]] = {}
    for net in nets:
        members = tuple(sorted({part_of[group] for group in net.members}))
        if len(members) > 1:
            sums = found.setdefault(members, [0.0, 0.0, 0.0])
            sums[0] += net.weight
            sums[1] += net.back
            sums[2] += net.copies * (net.weight + net.back)
    return tuple(
        Net(members=members, weight=there, back=back, copies=copied / (there + back) if there + back else 1.0)
        for members, (there, back, copied) in found.items()
    )

"""Coarser versions of a problem whose sets can all be listed. What they find is a distribution of the problem itself, and
often a very good one; what they miss are cuts inside the groups that were joined, which `windows.py` looks for."""

from __future__ import annotations

import numpy as np

from tonnage.split.coarsen import contract
from tonnage.split.family import Family
from tonnage.split.lattice import all_sets, groups_in, mask_of
from tonnage.split.problem import Problem

_STEPS = 12
_MOST_LISTED = 300_000
_BINS = 1000


def listed_roughly(problem: Problem, most: int) -> list[int]:
    """Downward-closed sets of the problem: up to `most` of those of the finest coarser version that can be listed, evenly
    spread over how much work they hold, and with the least weight open among those with as much."""
    numbered = Numbered.of(problem)
    numbered = numbered.joined(_series(numbered.problem))
    weights = np.array([net.weight + net.back for net in numbered.problem.nets])
    for share in np.linspace(0.0, 1.0, _STEPS):
        sets = all_sets(numbered.problem, _MOST_LISTED)
        if sets is not None:
            return [numbered.original(each) for each in _least_open(numbered.problem, sets, most)]
        heaviest = float(np.quantile(weights, 1 - share)) if len(weights) else 0.0
        numbered = numbered.joined(_heavier(numbered.problem, heaviest))
    return [0, mask_of(range(problem.size))]


def _least_open(problem: Problem, sets: list[int], most: int) -> list[int]:
    if len(sets) <= most:
        return sets
    family = Family(problem, sets, problem.classes[0].seconds)
    bins = np.floor(family.key / max(family.key[-1], 1e-300) * _BINS)
    order = np.lexsort((family.open_weight.sum(axis=0), bins))
    first = np.searchsorted(bins[order], bins[order])
    rank = np.arange(len(order)) - first
    chosen = order[rank < max(most // _BINS, 1)]
    return [0, *(family.mask(int(position)) for position in chosen), mask_of(range(problem.size))]


class Numbered:
    """A problem whose groups are groups of another one, and which of them."""

    def __init__(self, problem: Problem, parts: list[int]) -> None:
        self.problem = problem
        self._parts = parts  # of each group, the original groups as bits

    @classmethod
    def of(cls, problem: Problem) -> Numbered:
        return cls(problem, [1 << group for group in range(problem.size)])

    def joined(self, links: list[tuple[int, int]]) -> Numbered:
        smaller = contract(self.problem, links)
        place = {position: group for group, members in enumerate(smaller.members) for position in members}
        parts = [0] * smaller.size
        for group, members in enumerate(self.problem.members):
            parts[place[members[0]]] |= self._parts[group]
        return Numbered(smaller, parts)

    def original(self, mask: int) -> int:
        found = 0
        for group in groups_in(mask):
            found |= self._parts[group]
        return found


def _series(problem: Problem) -> list[tuple[int, int]]:
    """Neighbours of which the second follows nothing else and the first leads nothing else."""
    return [
        (group, followers[0])
        for group, followers in enumerate(problem.followers)
        if len(followers) == 1 and len(problem.leaders[followers[0]]) == 1
    ]


def _heavier(problem: Problem, weight: float) -> list[tuple[int, int]]:
    """The members of nets that weigh at least so much: the last that one would cut."""
    chosen = [net for net in problem.nets if net.weight + net.back >= weight]
    return [(net.members[0], other) for net in chosen for other in net.members[1:]]

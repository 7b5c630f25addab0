"""Sets near the boundaries of a chain: where the best distribution is looked for when not all sets can be listed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from tonnage.split.chains import Chain
from tonnage.split.lattice import groups_in, leader_masks, mask_of
from tonnage.split.problem import Problem


class Windows:
    """Makes downward-closed sets from others by adding or removing a few groups."""

    def __init__(self, problem: Problem, generator: np.random.Generator) -> None:
        self._leaders = leader_masks(problem)
        self._followers = [mask_of(each) for each in problem.followers]
        self._whole = mask_of(range(problem.size))
        self._generator = generator

    def around(self, chain: Chain, most: int) -> set[int]:
        """Sets near every boundary of the chain, about `most` in all, the boundaries themselves among them."""
        boundaries = list(_boundaries(chain))
        share = max(most // max(len(boundaries), 1), 8)
        found = {0, self._whole}
        for boundary in boundaries:
            found |= self._near(boundary, share)
        return found

    def _near(self, start: int, most: int) -> set[int]:
        """Breadth first in both directions; once there are many, a random part of them goes on."""
        found, edge = {start}, [start]
        while edge and len(found) < most:
            fresh = {each for position in edge for each in self._neighbours(position)} - found
            listed = sorted(fresh)
            keep = max(most // 6, 64)
            if len(listed) > keep:
                chosen = self._generator.choice(len(listed), size=keep, replace=False)
                listed = [listed[index] for index in chosen]
            found.update(listed[: most - len(found)])
            edge = listed
        return found

    def _neighbours(self, mask: int) -> Iterator[int]:
        for group in self._addable(mask):
            yield mask | 1 << group
        for group in self._removable(mask):
            yield mask & ~(1 << group)

    def _addable(self, mask: int) -> Iterable[int]:
        return (group for group in groups_in(self._whole & ~mask) if not self._leaders[group] & ~mask)

    def _removable(self, mask: int) -> Iterable[int]:
        return (group for group in groups_in(mask) if not self._followers[group] & mask)


def _boundaries(chain: Chain) -> Iterator[int]:
    mask = 0
    for stage in chain.stages[:-1]:
        mask |= stage.groups
        yield mask

"""Sets of groups that can be done first: downward-closed sets.

A contiguous distribution is a chain of such sets, each device taking what its set has more than the one before. With all of
them (`all_sets`) the solvers are exact; some networks have too many, and then any collection of them serves. A set is an
integer: bit g is group g.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from tonnage.split.problem import Problem

_BETWEEN_LOOKS = 1024


def all_sets(problem: Problem, most: int, keep_going: Callable[[], bool] = lambda: True) -> list[int] | None:
    """Every downward-closed set, smaller ones first; None if there are more than `most`, or no time is left."""
    leaders = leader_masks(problem)
    found: dict[int, int] = {0: sum(1 << group for group, mask in enumerate(leaders) if not mask)}
    order = [0]
    for place, each in enumerate(order):
        if place % _BETWEEN_LOOKS == 0 and not keep_going():
            return None
        ready = rest = found[each]  # groups that may come next
        while rest:
            bit = rest & -rest
            rest ^= bit
            larger = each | bit
            if larger in found:
                continue
            if len(order) >= most:
                return None
            more = ready ^ bit
            for follower in problem.followers[bit.bit_length() - 1]:
                if not leaders[follower] & ~larger:
                    more |= 1 << follower
            found[larger] = more
            order.append(larger)
    return order


def leader_masks(problem: Problem) -> list[int]:
    """Of each group, the set of groups that must not come after it (its direct ones)."""
    return [mask_of(leaders) for leaders in problem.leaders]


def mask_of(groups: Iterable[int]) -> int:
    mask = 0
    for group in groups:
        mask |= 1 << group
    return mask


def groups_in(mask: int) -> Iterator[int]:
    while mask:
        bit = mask & -mask
        yield bit.bit_length() - 1
        mask ^= bit


def prefixes(order: Sequence[int]) -> Iterator[int]:
    """The sets along an order, from the empty one to the whole."""
    mask = 0
    yield mask
    for group in order:
        mask |= 1 << group
        yield mask

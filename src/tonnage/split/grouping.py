"""From a network to the groups that solvers place: operations that must share a device, in an order without circles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tonnage.split.network import Network
from tonnage.split.strong_parts import quotient, strong_parts


@dataclass(frozen=True, slots=True)
class Grouping:
    """Groups in a topological order, as positions of operations; the group of each operation; which follow which."""

    members: tuple[tuple[int, ...], ...]
    group_of: tuple[int, ...]
    followers: tuple[tuple[int, ...], ...]


def group(network: Network, *, contiguous: bool = True) -> Grouping:
    """Operations of one class become one group. Where subnetworks must be contiguous, so do classes that wait for each
    other in a circle, since every device's part is done before the next one's begins."""
    class_of = _classes(network)
    count = max(class_of, default=-1) + 1
    followers = _order(network, class_of, count)
    part_of, parts = strong_parts(followers) if contiguous else (list(range(count)), count)
    group_of = [part_of[each] for each in class_of]
    members: list[list[int]] = [[] for _ in range(parts)]
    for position, number in enumerate(group_of):
        members[number].append(position)
    return Grouping(tuple(map(tuple, members)), tuple(group_of), quotient(followers, part_of, parts))


def _classes(network: Network) -> list[int]:
    numbers: dict[object, int] = {}
    keys = [
        ("class", operation.together) if operation.together is not None else ("alone", position)
        for position, operation in enumerate(network.operations)
    ]
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def _order(network: Network, class_of: Sequence[int], count: int) -> list[set[int]]:
    """Which class must not come after which. Backward operations follow their class; a class that has nothing else takes
    its edges with other backward operations the other way round, as if it stood beside the forward ones."""
    backward = [operation.is_backward for operation in network.operations]
    has_forward = [False] * count
    for position, is_backward in enumerate(backward):
        has_forward[class_of[position]] |= not is_backward
    followers: list[set[int]] = [set() for _ in range(count)]
    for source, target in network.edges:
        first, second = class_of[source], class_of[target]
        if first == second or backward[source] != backward[target]:
            continue
        if not backward[source]:
            followers[first].add(second)
        elif not (has_forward[first] and has_forward[second]):
            followers[second].add(first)
    return followers

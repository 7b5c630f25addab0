"""Some hundred boxes for a network of thousands of operations: neighbours are joined, those of one module first.

Two boxes may become one where one is the only leader or the only follower of the other: no circle comes of that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from tonnage.split.network import Network, Operation
from tonnage.split.strong_parts import quotient

MOST_BOXES = 200
_SEPARATORS = re.compile(r"[./]")
_PATH = re.compile(r"[\w./]+")

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Boxes:
    """In a topological order: positions of their operations, what to write on them, and who follows whom."""

    members: tuple[tuple[int, ...], ...]
    labels: tuple[str, ...]
    followers: tuple[tuple[int, ...], ...]

    @property
    def edges(self) -> Iterator[tuple[int, int]]:
        for box, followers in enumerate(self.followers):
            for follower in followers:
                yield box, follower


def boxes_of(network: Network, most: int = MOST_BOXES) -> Boxes:
    """Each operation in a box of its own where these are few enough."""
    joining = _Joining(network)
    for depth, size in joining.rounds():
        if len(joining.members) <= most:
            break
        joining.join_all(depth, size)
    groups = joining.in_order()
    if len(groups) > most:  # what stands next to each other in such an order can always be joined
        step = -(-len(groups) // most)
        groups = [list(chain.from_iterable(groups[at : at + step])) for at in range(0, len(groups), step)]
    return _boxes(network, groups)


def _boxes(network: Network, groups: Sequence[list[int]]) -> Boxes:
    box_of = [0] * len(network.operations)
    for number, members in enumerate(groups):
        for position in members:
            box_of[position] = number
    followers = quotient(network.consumers, box_of, len(groups))
    labels = tuple(_label([network.operations[each] for each in members]) for members in groups)
    return Boxes(tuple(tuple(sorted(each)) for each in groups), labels, followers)


class _Joining:
    """Boxes by number with their neighbours; `join_all` makes them fewer."""

    def __init__(self, network: Network) -> None:
        self.members = {position: [position] for position in range(len(network.operations))}
        self._paths = dict(enumerate(path_of(operation) for operation in network.operations))
        self._followers = {box: set(consumers) for box, consumers in enumerate(network.consumers)}
        self._leaders: dict[int, set[int]] = {box: set() for box in self.members}
        for box, followers in self._followers.items():
            for follower in followers:
                self._leaders[follower].add(box)

    def rounds(self) -> Iterator[tuple[int, int]]:
        """From the innermost modules outwards; in each, small boxes before large ones so that they stay alike."""
        for depth in range(max(map(len, self._paths.values()), default=0), -1, -1):
            size = 2
            while size < 2 * len(self._paths):
                yield depth, size
                size *= 2

    def join_all(self, depth: int, size: int) -> None:
        """Those whose paths agree so far and that hold no more operations than `size` together."""
        waiting = sorted(self.members, reverse=True)
        while waiting:
            box = waiting.pop()
            if box not in self.members:
                continue
            other = next((each for each in sorted(self._followers[box]) if self._fit(box, each, depth, size)), None)
            if other is not None:
                self._join(box, other)
                waiting.append(box)

    def _fit(self, first: int, second: int, depth: int, size: int) -> bool:
        if len(self._followers[first]) > 1 and len(self._leaders[second]) > 1:
            return False
        if len(self.members[first]) + len(self.members[second]) > size:
            return False
        return len(common_path([self._paths[first], self._paths[second]])) >= depth

    def _join(self, first: int, second: int) -> None:
        """The second goes into the first."""
        self.members[first] += self.members.pop(second)
        self._paths[first] = common_path([self._paths[first], self._paths.pop(second)])
        for follower in self._followers.pop(second):
            self._leaders[follower].discard(second)
            self._link(first, follower)
        for leader in self._leaders.pop(second):
            self._followers[leader].discard(second)
            self._link(leader, first)

    def _link(self, leader: int, follower: int) -> None:
        if leader != follower:
            self._followers[leader].add(follower)
            self._leaders[follower].add(leader)

    def in_order(self) -> list[list[int]]:
        """A topological order that goes on with what just became ready: chains stay together."""
        missing = {box: len(leaders) for box, leaders in self._leaders.items()}
        ready = sorted((box for box, count in missing.items() if not count), reverse=True)
        order = []
        while ready:
            box = ready.pop()
            order.append(self.members[box])
            for follower in sorted(self._followers[box], reverse=True):
                missing[follower] -= 1
                if not missing[follower]:
                    ready.append(follower)
        return order


def path_of(operation: Operation) -> Path:
    """The modules that an operation stands in, where its name is such a path."""
    name = operation.name.strip("./")
    return tuple(filter(None, _SEPARATORS.split(name))) if _PATH.fullmatch(name) else ()


def common_path(paths: Sequence[Path]) -> Path:
    shortest = min(paths, key=len)
    for depth, part in enumerate(shortest):
        if any(path[depth] != part for path in paths):
            return shortest[:depth]
    return shortest


def short_kind(operation: Operation) -> str:
    """`aten::linear` as `linear`."""
    return operation.kind.rpartition("::")[2] or operation.name or str(operation.id)


def _label(operations: Sequence[Operation]) -> str:
    if len(operations) == 1:
        return short_kind(operations[0])
    paths = [path_of(operation) for operation in operations]
    path = common_path(paths)
    if path and min(map(len, paths)) > len(path):
        first, last = paths[0][len(path)], paths[-1][len(path)]
        path = (*path, first if first == last else f"{first}–{last}")
    largest = max(operations, key=lambda operation: max(operation.seconds.values(), default=0.0))
    return ".".join(path) or f"{short_kind(largest)} + {len(operations) - 1}"

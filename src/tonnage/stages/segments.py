"""Operations of each device in as few runs as the way of the data allows: one, where no way leaves a device and returns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

Place = tuple[str, int]  # a device and the number of a segment on it


def place_in_segments(
    operations: Sequence[str], device: Mapping[str, str], before: Mapping[str, Iterable[str]]
) -> dict[str, Place]:
    """The segment of each operation. `operations` come in a topological order; `before` are those each waits for."""
    places: dict[str, Place] = {}
    followers: dict[Place, set[Place]] = defaultdict(set)
    counts: dict[str, int] = defaultdict(int)
    for operation in operations:
        here = device[operation]
        earlier = {places[other] for other in before[operation]}
        least = max((number for other, number in earlier if other == here), default=0)
        number = least
        while number < counts[here] and _reaches((here, number), earlier - {(here, number)}, followers):
            number += 1
        places[operation] = (here, number)
        counts[here] = max(counts[here], number + 1)
        for other in earlier - {(here, number)}:
            followers[other].add((here, number))
    return places


def levels_of(places: Iterable[Place], before: Mapping[Place, Iterable[Place]]) -> dict[Place, int]:
    """How many segments come before each, on the longest way."""
    levels: dict[Place, int] = {}
    for place in in_order(places, before):
        levels[place] = max((levels[other] + 1 for other in before[place]), default=0)
    return levels


def in_order(places: Iterable[Place], before: Mapping[Place, Iterable[Place]]) -> list[Place]:
    """A topological order, stable for those that do not wait for each other."""
    found: dict[Place, None] = {}
    for start in places:
        stack = [start]
        while stack:
            waiting = [other for other in before[stack[-1]] if other not in found]
            if waiting and stack[-1] not in found:
                stack.append(waiting[0])
            else:
                found[stack.pop()] = None
    return list(found)


def _reaches(start: Place, goals: set[Place], followers: Mapping[Place, set[Place]]) -> bool:
    seen, stack = {start}, [start]
    while stack:
        place = stack.pop()
        if place in goals:
            return True
        new = followers[place] - seen
        seen |= new
        stack += new
    return False

"""The quickest ways between the places of a cluster, by Dijkstra's algorithm."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tonnage.hardware.cluster import Link


@dataclass(frozen=True, slots=True)
class Hop:
    """One link, from one of its members to another."""

    source: str
    target: str
    link: Link


class Routes:
    """Quickest ways for messages of one size, stored and forwarded at each stop."""

    def __init__(self, links: Iterable[Link], message_bytes: int = 2**20) -> None:
        self._seconds: dict[int, float] = {}
        self._links_of: dict[str, list[tuple[int, Link]]] = {}
        for number, link in enumerate(links):
            self._seconds[number] = link.seconds(message_bytes)
            for member in link.members:
                self._links_of.setdefault(member, []).append((number, link))

    def last_hops(self, source: str) -> dict[str, Hop]:
        """For every place that can be reached, the hop that arrives there."""
        best, arrived_by = {source: 0.0}, dict[str, Hop]()
        queue, used = [(0.0, source)], set[int]()
        while queue:
            seconds, place = heapq.heappop(queue)
            if seconds > best[place]:
                continue
            for number, link in self._links_of.get(place, ()):
                if number in used:  # from a member that is nearer to the source: nothing to gain
                    continue
                neighbours = link.leads(place)
                if neighbours:
                    used.add(number)
                arrival = seconds + self._seconds[number]
                for neighbour in neighbours:
                    if arrival < best.get(neighbour, float("inf")):
                        best[neighbour], arrived_by[neighbour] = arrival, Hop(place, neighbour, link)
                        heapq.heappush(queue, (arrival, neighbour))
        return arrived_by


def way_to(target: str, last_hops: dict[str, Hop], source: str) -> tuple[Hop, ...] | None:
    """The hops from the source of `last_hops` to a target; None where no link leads there."""
    hops: list[Hop] = []
    while target != source:
        if target not in last_hops:
            return None
        hops.append(last_hops[target])
        target = hops[-1].source
    return tuple(reversed(hops))

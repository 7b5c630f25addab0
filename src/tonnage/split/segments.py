"""What each device runs at once: all that is its own, or parts of it where the way of the data leaves it and comes back."""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.split.network import Network
from tonnage.split.strong_parts import strong_parts

Segment = tuple[int, tuple[int, ...]]  # a device, and positions of operations


def segments_of(network: Network, places: Sequence[int]) -> tuple[Segment, ...]:
    """In an order in which they can run one after the other."""
    levels = _device_levels(network, places) or _operation_levels(network, places)
    found: dict[tuple[int, int], list[int]] = {}
    for position, level in enumerate(levels):
        found.setdefault((level, places[position]), []).append(position)
    return tuple((place, tuple(positions)) for (_, place), positions in sorted(found.items()))


def _device_levels(network: Network, places: Sequence[int]) -> list[int] | None:
    """How deep the device of each operation stands among devices that can be done one after the other; None where they
    wait for each other in a circle."""
    followers: list[set[int]] = [set() for _ in range(max(places, default=-1) + 1)]
    for producer, consumer in network.edges:
        followers[places[producer]].add(places[consumer])
    for place, targets in enumerate(followers):
        targets.discard(place)
    order, parts = strong_parts(followers)
    if parts < len(followers):
        return None
    depth = [0] * len(followers)
    for place in sorted(range(len(followers)), key=lambda each: order[each]):
        for target in followers[place]:
            depth[target] = max(depth[target], depth[place] + 1)
    return [depth[place] for place in places]


def _operation_levels(network: Network, places: Sequence[int]) -> list[int]:
    """How often data must change devices before each operation."""
    depth = [0] * len(places)
    for producer, consumer in network.edges:  # in a topological order of their producers
        step = places[producer] != places[consumer]
        depth[consumer] = max(depth[consumer], depth[producer] + step)
    return depth

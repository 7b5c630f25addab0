"""Orders of devices in which neighbours are near each other, and the first and the last near the ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations

from tonnage.split.devices import Fabric
from tonnage.split.ends import seconds_in, seconds_out
from tonnage.split.network import Network

_FEW = 4  # devices: 24 orders


def sequences(network: Network, fabric: Fabric) -> Iterator[list[int]]:
    """By node; always to the nearest device from each kind of start, that of the kind which is nearest to the inputs; the
    same with what is nearest to the outputs at the end; and the other way round from there. With ends, all orders of few
    devices."""
    by_node = _by_node(fabric)
    yield by_node
    if len(by_node) <= _FEW and (fabric.inputs is not None or fabric.outputs is not None):
        yield from map(list, permutations(by_node))
        return
    last = min(by_node, key=lambda place: seconds_out(network, fabric, place))
    for start in _starts(fabric, lambda place: seconds_in(network, fabric, place)):
        sequence = _onwards(fabric, start)
        yield sequence
        if fabric.outputs is not None and last != start:
            yield [*(place for place in sequence if place != last), last]
    for start in _starts(fabric, lambda place: seconds_out(network, fabric, place)):
        yield _onwards(fabric, start)[::-1]


def pairs(network: Network, fabric: Fabric) -> Iterator[list[int]]:
    """Two devices of each kind: of its kind the first is nearest to the inputs, and the second to the outputs."""
    for first in _starts(fabric, lambda place: seconds_in(network, fabric, place)):
        for second in _starts(fabric, lambda place: seconds_out(network, fabric, place)):
            if first != second:
                yield [first, second]


def _by_node(fabric: Fabric) -> list[int]:
    return sorted(range(len(fabric.devices)), key=lambda place: (fabric.devices[place].node, place))


def _starts(fabric: Fabric, seconds: Callable[[int], float]) -> list[int]:
    """Of each kind of device the nearest."""
    nearest: dict[tuple[str, float], int] = {}
    for place in _by_node(fabric):
        kind = (fabric.devices[place].kind, fabric.devices[place].speed)
        if kind not in nearest or seconds(place) < seconds(nearest[kind]):
            nearest[kind] = place
    return list(nearest.values())


def _onwards(fabric: Fabric, start: int) -> list[int]:
    """From each device to the nearest that is left."""
    sequence, left = [start], set(range(len(fabric.devices))) - {start}
    while left:
        nearest = min(left, key=lambda place: (fabric.transfer_seconds(sequence[-1], place, 1 << 20), place))
        sequence.append(nearest)
        left.remove(nearest)
    return sequence

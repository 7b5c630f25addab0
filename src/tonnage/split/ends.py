"""What comes into a network and goes out of it, where the cluster says from which node and to which.

An input goes from its node to the first device that reads it and from each to the next; a device that is that very node
has it already. Outputs go straight to their node. Nobody sends gradients of inputs. Ends of unknown size do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from tonnage.split.devices import HERE, NO_WAY, Fabric, Way
from tonnage.split.network import Network

Segments = Sequence[tuple[int, tuple[int, ...]]]
Leg = tuple[int | None, int, Way]  # from a device, or from the inputs' node, to a device


def legs(fabric: Fabric, readers: Iterable[int]) -> Iterator[Leg]:
    """How an input reaches the devices that read it, in their order."""
    if fabric.inputs is None:
        return
    source: int | None = None
    for place in readers:
        way = fabric.inputs.ways.get(place, NO_WAY)
        if way != HERE:
            yield source, place, way if source is None else fabric.ways.get((source, place), NO_WAY)
            source = place


def way_out(fabric: Fabric, place: int) -> Way:
    return HERE if fabric.outputs is None else fabric.outputs.ways.get(place, NO_WAY)


def seconds_in(network: Network, fabric: Fabric, place: int) -> float:
    """Until all inputs have come straight to a device."""
    nbytes = sum(each.nbytes for each in network.inputs)
    return sum(fabric.way_seconds(way, nbytes) for _, _, way in legs(fabric, [place])) if nbytes else 0.0


def seconds_out(network: Network, fabric: Fabric, place: int) -> float:
    """Until all outputs have gone from a device to where they must end."""
    nbytes = sum(network.operations[position].output_bytes for position in network.outputs)
    return fabric.way_seconds(way_out(fabric, place), nbytes) if nbytes else 0.0


class Ends:
    """Of one distribution: a device (its position) for each operation, and their segments in the order of their turns."""

    def __init__(self, network: Network, fabric: Fabric, places: Sequence[int], segments: Segments) -> None:
        self._fabric, self._places = fabric, places
        turns = {place: number for number, (place, _) in reversed(list(enumerate(segments)))}
        counted = network.inputs if fabric.inputs is not None else ()
        self._inputs = [each for each in counted if each.nbytes and each.readers]
        # Of each input its bytes, and the devices that read it in the order of their turns.
        self.readers = [
            (each.nbytes, sorted({places[reader] for reader in each.readers}, key=turns.__getitem__))
            for each in self._inputs
        ]
        made = network.outputs if fabric.outputs is not None else ()
        sizes = {position: network.operations[position].output_bytes for position in made}
        self.made = {position: nbytes for position, nbytes in sizes.items() if nbytes}

    @property
    def positions(self) -> list[int]:
        """Operations that read inputs or make outputs."""
        return sorted({*self.made, *(reader for each in self._inputs for reader in each.readers)})

    @cached_property
    def moves(self) -> list[tuple[Way, int]]:
        """The ways that a sample takes into the network and out of it, with the bytes on them."""
        out = [(way_out(self._fabric, self._places[each]), nbytes) for each, nbytes in self.made.items()]
        return [*self._moves_in, *(move for move in out if move[0] != HERE)]

    @cached_property
    def _moves_in(self) -> list[tuple[Way, int]]:
        return [(way, nbytes) for nbytes, readers in self.readers for _, _, way in legs(self._fabric, readers)]

    @cached_property
    def _arrival(self) -> dict[int, float]:
        """By operation that reads inputs: when the last of them is there. They leave for a device one after the other."""
        arrival: dict[int, float] = {}
        last: dict[tuple[int | None, int], float] = {}
        for each, (nbytes, readers) in zip(self._inputs, self.readers, strict=True):
            there: dict[int | None, float] = {None: 0.0}
            for source, target, way in legs(self._fabric, readers):
                start = max(last.get((source, target), 0.0), there[source] + way.latency_seconds)
                last[source, target] = there[target] = start + nbytes / self._fabric.rate(way)
            for reader in each.readers:
                arrival[reader] = max(arrival.get(reader, 0.0), there.get(self._places[reader], 0.0))
        return arrival

    @cached_property
    def _between_samples(self) -> float:
        """Seconds from the inputs of one sample to those of the next: the busiest lane decides."""
        lanes: dict[int, float] = {}
        for way, nbytes in self._moves_in:
            for lane in way.lanes:
                lanes[lane] = lanes.get(lane, 0.0) + nbytes / self._fabric.lanes[lane].bytes_second
        return max(lanes.values(), default=0.0)

    def begin(self, positions: Iterable[int], sample: int = 0) -> float:
        """When the inputs of these operations are there; of a later sample, if all of them wait at their node."""
        first = max((self._arrival[each] for each in positions if each in self._arrival), default=0.0)
        return first + sample * self._between_samples if first else 0.0

    def end(self, positions: Iterable[int], moment: float) -> float:
        """When the outputs of these operations, all of one device and made at `moment`, are where they must end."""
        own = [each for each in positions if each in self.made]
        if not own:
            return moment
        nbytes = sum(self.made[each] for each in own)
        return moment + self._fabric.way_seconds(way_out(self._fabric, self._places[own[0]]), nbytes)

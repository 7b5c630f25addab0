"""What comes into a network and goes out of it, where the cluster says from which node and to which.

An input goes from its node to the first device that reads it and from each to the next; a device that is that very node
has it already. Outputs go straight to their node. Nobody sends gradients of inputs. Ends of unknown size do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from math import lcm

from tonnage.split.devices import HERE, NO_WAY, Fabric, Way
from tonnage.split.layout import Layout, Places
from tonnage.split.network import Input, Network
from tonnage.split.segments import Segment

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
    """Of one distribution, with its segments in the order of their turns. Replicas take turns with samples: each has its
    share of what comes in and goes out."""

    def __init__(self, network: Network, fabric: Fabric, layout: Layout, segments: Sequence[Segment]) -> None:
        self._fabric, self._places = fabric, layout.places
        self._replicas = {holders[0]: holders for holders in layout.replicas}
        self._turns = {place: number for number, (place, _) in reversed(list(enumerate(segments)))}
        counted = network.inputs if fabric.inputs is not None else ()
        self._inputs = [each for each in counted if each.nbytes and each.readers]
        made = network.outputs if fabric.outputs is not None else ()
        sizes = {position: network.operations[position].output_bytes for position in made}
        self._made = {position: nbytes for position, nbytes in sizes.items() if nbytes}
        self._arrivals: dict[int, dict[int, float]] = {}  # by turn of replicas

    def _holders(self, place: int) -> Places:
        return self._replicas.get(place, (place,))

    def _device(self, place: int, sample: int) -> int:
        holders = self._holders(place)
        return holders[sample % len(holders)]

    def _stages(self, entry: Input) -> list[int]:
        """Those that read an input, in the order of their turns."""
        return sorted({self._places[reader] for reader in entry.readers}, key=self._turns.__getitem__)

    @property
    def positions(self) -> list[int]:
        """Operations that read inputs or make outputs."""
        return sorted({*self._made, *(reader for each in self._inputs for reader in each.readers)})

    @cached_property
    def readers(self) -> list[tuple[float, list[int]]]:
        """Bytes of inputs, and the devices that read them in the order of their turns; where replicas read them, for each
        turn its share."""
        found: list[tuple[float, list[int]]] = []
        for each in self._inputs:
            stages = self._stages(each)
            turns = lcm(*(len(self._holders(place)) for place in stages))
            for number in range(turns):
                found.append((each.nbytes / turns, [self._device(place, number) for place in stages]))
        return found

    @cached_property
    def leaving(self) -> dict[int, float]:
        """Bytes of outputs, by device."""
        found: dict[int, float] = {}
        for position, nbytes in self._made.items():
            holders = self._holders(self._places[position])
            for device in holders:
                found[device] = found.get(device, 0.0) + nbytes / len(holders)
        return found

    @cached_property
    def moves(self) -> list[tuple[Way, float]]:
        """The ways that a sample takes into the network and out of it, with the bytes on them."""
        out = [(way_out(self._fabric, device), nbytes) for device, nbytes in self.leaving.items()]
        return [*self._moves_in, *(move for move in out if move[0] != HERE)]

    @cached_property
    def _moves_in(self) -> list[tuple[Way, float]]:
        return [(way, nbytes) for nbytes, readers in self.readers for _, _, way in legs(self._fabric, readers)]

    def _arrival(self, sample: int) -> dict[int, float]:
        """By operation that reads inputs: when the last of them is there, for the devices whose turn it is."""
        turn = sample % lcm(*map(len, self._replicas.values()))
        if turn not in self._arrivals:
            self._arrivals[turn] = self._arrival_in(turn)
        return self._arrivals[turn]

    def _arrival_in(self, turn: int) -> dict[int, float]:
        """Inputs leave for a device one after the other."""
        arrival: dict[int, float] = {}
        last: dict[tuple[int | None, int], float] = {}
        for each in self._inputs:
            there: dict[int | None, float] = {None: 0.0}
            devices = [self._device(place, turn) for place in self._stages(each)]
            for source, target, way in legs(self._fabric, devices):
                start = max(last.get((source, target), 0.0), there[source] + way.latency_seconds)
                last[source, target] = there[target] = start + each.nbytes / self._fabric.bytes_second(way)
            for reader in each.readers:
                device = self._device(self._places[reader], turn)
                arrival[reader] = max(arrival.get(reader, 0.0), there.get(device, 0.0))
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
        arrival = self._arrival(sample)
        first = max((arrival[each] for each in positions if each in arrival), default=0.0)
        return first + sample * self._between_samples if first else 0.0

    def end(self, positions: Iterable[int], moment: float, sample: int = 0) -> float:
        """When the outputs of these operations, all of one stage and made at `moment`, are where they must end."""
        own = [each for each in positions if each in self._made]
        if not own:
            return moment
        nbytes = sum(self._made[each] for each in own)
        device = self._device(self._places[own[0]], sample)
        return moment + self._fabric.way_seconds(way_out(self._fabric, device), nbytes)

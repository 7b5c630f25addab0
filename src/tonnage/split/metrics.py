"""What a distribution brings, computed from the assignment alone: it shares nothing with the solvers and so checks them.

A device computes its operations of one sample one after the other; transfers go on meanwhile. A tensor goes from its maker
to the first device that reads it and from each to the next, over every lane of the way; gradients go straight back to the
maker. So in a stream of samples the slowest device or lane sets the period. A device whose operations wait for those of
another device that wait for its own works in segments, each when it can begin. What comes in and goes out is in `ends.py`.

Replicas of a stage take turns: sample n goes to the one with that number, counted round, and each has its share of
computing and traffic. In training they send each other the gradients of their weights, once a step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise, permutations
from math import inf, lcm

from tonnage.split.devices import NO_WAY, Device, Fabric, Way
from tonnage.split.ends import Ends
from tonnage.split.layout import Layout, Places
from tonnage.split.network import ANY, Network, Operation
from tonnage.split.segments import Segment, segments_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Of one distribution; times are of one sample (of one micro-batch in training)."""

    period_seconds: float
    latency_seconds: float
    energy_joules: float
    devices: int
    memory_bytes: Mapping[str, int] = field(hash=False)  # by device
    memory_share: float  # of the fullest device
    bottleneck: str  # the device or lane that sets the period
    busy_seconds: Mapping[str, float] = field(hash=False)  # by device
    lane_seconds: Mapping[str, float] = field(hash=False)  # by lane that is used
    moved_bytes: int
    step_seconds: float = 0.0  # of a training step of several micro-batches; 0 in inference


def seconds_on(operation: Operation, device: Device, *, backward: bool = False) -> float:
    """Of one operation on a device; infinite where it cannot run there."""
    table = operation.backward_seconds if backward else operation.seconds
    if device.kind in table:
        return table[device.kind] / device.speed
    if ANY in table:
        return table[ANY] / device.speed
    return 0.0 if backward else inf


@dataclass(frozen=True, slots=True)
class Transfer:
    """A tensor on its way from one device to another."""

    producer: int
    source: int
    target: int
    nbytes: int


class Evaluation:
    """A network on a fabric with a device (its position) for each operation; `replicas` as in `Layout`."""

    def __init__(
        self,
        network: Network,
        fabric: Fabric,
        places: Sequence[int],
        *,
        replicas: Sequence[Places] = (),
        recompute: bool = False,
        micro_batches: int = 1,
    ) -> None:
        self.network, self.fabric, self.places = network, fabric, tuple(places)
        self.layout = Layout(self.places, tuple(replicas))
        self._replicas = {holders[0]: holders for holders in replicas}
        self._recompute, self._micro_batches = recompute, micro_batches

    def holders(self, place: int) -> Places:
        """The devices that hold the stage of this one and take turns, itself first."""
        return self._replicas.get(place, (place,))

    def device(self, place: int, number: int) -> int:
        """Who does sample `number` for the stage of this device."""
        holders = self.holders(place)
        return holders[number % len(holders)]

    @cached_property
    def transfers(self) -> tuple[Transfer, ...]:
        """Forward ones: each tensor from its maker to the first device that reads it, and from each to the next."""
        order = {place: number for number, (place, _) in reversed(list(enumerate(self.segments)))}
        found = []
        for producer, readers in self._readers.items():
            way = [self.places[producer], *sorted(readers, key=lambda place: order[place])]
            nbytes = self.network.operations[producer].output_bytes
            found += [Transfer(producer, source, target, nbytes) for source, target in pairwise(way)]
        return tuple(found)

    @cached_property
    def answers(self) -> tuple[Transfer, ...]:
        """Gradients in training: from each device that reads a tensor straight to its maker."""
        if not self.network.is_training:
            return ()
        return tuple(
            Transfer(producer, reader, self.places[producer], self.network.operations[producer].output_bytes)
            for producer, readers in self._readers.items()
            for reader in readers
        )

    @cached_property
    def _readers(self) -> dict[int, set[int]]:
        """By operation whose output leaves its device: the other devices that read it."""
        found: dict[int, set[int]] = {}
        for producer, consumer in self.network.edges:
            if self.places[producer] != self.places[consumer]:
                found.setdefault(producer, set()).add(self.places[consumer])
        return found

    def operations_on(self, place: int) -> list[Operation]:
        return [each for each, here in zip(self.network.operations, self.places, strict=True) if here == place]

    @cached_property
    def busy_seconds(self) -> dict[int, float]:
        """Computing of one sample, by device; of a replica, its share of all samples."""
        busy: dict[int, float] = {}
        for operation, place in zip(self.network.operations, self.places, strict=True):
            holders = self.holders(place)
            for device in holders:
                busy[device] = busy.get(device, 0.0) + self._operation_seconds(operation, device) / len(holders)
        return busy

    def _operation_seconds(self, operation: Operation, place: int) -> float:
        device = self.fabric.devices[place]
        forward = seconds_on(operation, device)
        if not self.network.is_training:
            return forward
        return forward * (2 if self._recompute else 1) + seconds_on(operation, device, backward=True)

    @cached_property
    def ends(self) -> Ends:
        return Ends(self.network, self.fabric, self.layout, self.segments)

    @cached_property
    def traffic(self) -> tuple[tuple[int, int, float], ...]:
        """Source, target and bytes of one sample on average: tensors, gradients, and what replicas exchange once a step."""
        found = []
        for each in (*self.transfers, *self.answers):
            turns = lcm(len(self.holders(each.source)), len(self.holders(each.target)))
            for number in range(turns):
                pair = self.device(each.source, number), self.device(each.target, number)
                found.append((*pair, each.nbytes / turns))
        for place, holders in self._replicas.items() if self.network.is_training else ():
            nbytes = self.gradient_bytes(place) / self._micro_batches
            found += [(source, target, nbytes) for source, target in permutations(holders, 2)]
        return tuple(found)

    def gradient_bytes(self, place: int) -> int:
        """Of the weights of a stage. Operations whose weights are not trained have no state."""
        return sum(min(each.weight_bytes, each.state_bytes) for each in self.operations_on(place))

    @cached_property
    def _ways(self) -> list[tuple[Way, float]]:
        """Every way that is taken, with the bytes of one sample on it."""
        between = [(self.fabric.ways.get((source, target), NO_WAY), nbytes) for source, target, nbytes in self.traffic]
        return [*between, *self.ends.moves]

    @cached_property
    def lane_seconds(self) -> dict[int, float]:
        """Traffic of one sample, by lane."""
        lanes: dict[int, float] = {}
        for way, nbytes in self._ways:
            for lane in way.lanes:
                lanes[lane] = lanes.get(lane, 0.0) + nbytes / self.fabric.lanes[lane].bytes_second
        return lanes

    @cached_property
    def period_seconds(self) -> float:
        """Infinite where something must be sent and no way is left."""
        if any(way == NO_WAY for way, _ in self._ways):
            return inf
        return max([*self.busy_seconds.values(), *self.lane_seconds.values()], default=0.0)

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """Device and operations of each segment, in an order in which they can run one after the other."""
        return segments_of(self.network, self.places)

    @cached_property
    def latency_seconds(self) -> float:
        """Of one sample alone, in training of its forward and backward: a segment begins when its last input is there. Of
        replicas the first takes it."""
        arrival: dict[tuple[int, int], float] = {}
        free: dict[int, float] = {}
        leaders: dict[int, list[int]] = {}
        for producer, consumer in self.network.edges:
            leaders.setdefault(consumer, []).append(producer)
        end = 0.0
        for place, positions in self.segments:
            begin = max(free.get(place, 0.0), self.ends.begin(positions))
            for position in positions:
                for leader in leaders.get(position, ()):
                    if self.places[leader] != place:
                        begin = max(begin, arrival[leader, place])
            busy = sum(self._operation_seconds(self.network.operations[position], place) for position in positions)
            free[place] = begin + busy
            end = max(end, self.ends.end(positions, free[place]))
            self._send(place, set(positions), free[place], arrival)
        return end

    def _send(self, place: int, positions: set[int], moment: float, arrival: dict[tuple[int, int], float]) -> None:
        """What a segment made leaves for each device one tensor after the other; there and back in training."""
        trips = 2 if self.network.is_training else 1
        last: dict[tuple[int, int], float] = {}
        for each in self.transfers:
            if each.producer not in positions:
                continue
            way = self.fabric.ways.get((each.source, each.target), NO_WAY)
            rate = min((self.fabric.lanes[lane].bytes_second for lane in way.lanes), default=inf)
            there = moment if each.source == place else arrival[each.producer, each.source]
            pair = (each.source, each.target)
            start = max(last.get(pair, 0.0), there + way.latency_seconds * trips)
            last[pair] = arrival[each.producer, each.target] = start + trips * each.nbytes / rate

    @cached_property
    def weight_bytes(self) -> dict[int, int]:
        """Parameters, buffers and in training what belongs to them, by device; a weight once for all that read it there."""
        held: dict[int, dict[str, int]] = {}
        total: dict[int, int] = {}
        for operation, place in zip(self.network.operations, self.places, strict=True):
            named = held.setdefault(place, {})
            new = [name for name in operation.weights if name not in named]
            named.update((name, self.network.weight_bytes[name]) for name in new)
            extra = operation.state_bytes if new or not operation.weights else 0
            unnamed = operation.weight_bytes if not operation.weights else sum(named[name] for name in new)
            total[place] = total.get(place, 0) + unnamed + extra
        return total

    @cached_property
    def activation_bytes(self) -> dict[int, int]:
        """The most that outputs take at a time on each device, what comes in and waits to go out included."""
        last_use = list(range(len(self.places)))
        for producer, consumer in self.network.edges:
            last_use[producer] = max(last_use[producer], consumer)
        return {place: self._peak(place, last_use) for place in set(self.places)}

    def _peak(self, place: int, last_use: Sequence[int]) -> int:
        """Operations run in the order of the network; an output goes after its last use."""
        steps = [position for position, here in enumerate(self.places) if here == place]
        sizes = {position: self.network.operations[position].output_bytes for position in steps}
        changes: dict[int, int] = {}
        for each in self.transfers:
            if each.target == place:
                sizes[each.producer] = each.nbytes
        first = {position: position if self.places[position] == place else steps[0] for position in sizes}
        for position, nbytes in sizes.items():
            changes[first[position]] = changes.get(first[position], 0) + nbytes
            gone = last_use[position] + 1
            changes[gone] = changes.get(gone, 0) - nbytes
        held = peak = 0
        for moment in sorted(changes):
            held += changes[moment]
            peak = max(peak, held)
        return peak

    def metrics(self, in_flight: Mapping[int, int] | None = None) -> Metrics:
        """Everything at once. `in_flight` is how many micro-batches each device keeps, in training."""
        devices = self.fabric.devices
        used = sorted(self.busy_seconds)
        held = in_flight or {}
        memory = {
            device: self.weight_bytes[place] + self._working_bytes(place, held.get(device, 1))
            for place in set(self.places)
            for device in self.holders(place)
        }
        shares = [memory[place] / devices[place].memory_bytes for place in used]
        busy = {devices[place].name: self.busy_seconds[place] for place in used}
        lanes = {self.fabric.lanes[lane].name: seconds for lane, seconds in sorted(self.lane_seconds.items())}
        return Metrics(
            period_seconds=self.period_seconds,
            latency_seconds=self.latency_seconds,
            energy_joules=self._energy(),
            devices=len(used),
            memory_bytes={devices[place].name: memory[place] for place in used},
            memory_share=max(shares),
            bottleneck=max((busy | lanes).items(), key=lambda item: item[1])[0],
            busy_seconds=busy,
            lane_seconds=lanes,
            moved_bytes=round(sum(nbytes for _, nbytes in self._ways)),
        )

    def _working_bytes(self, place: int, held: int) -> int:
        if not self.network.is_training:
            return self.activation_bytes[place]
        stash = sum(operation.stash_bytes for operation in self.operations_on(place))
        inputs = sum(each.nbytes for each in self.transfers if each.target == place)
        return stash + held * inputs if self._recompute else held * stash

    def _energy(self) -> float:
        """Devices in use draw their idle power for the whole period, and more while they compute."""
        joules = 0.0
        for place, seconds in self.busy_seconds.items():
            device = self.fabric.devices[place]
            joules += device.idle_watts * self.period_seconds + (device.active_watts - device.idle_watts) * seconds
        return joules

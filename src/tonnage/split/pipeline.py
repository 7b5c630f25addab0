"""The time of a training step over stages: micro-batches, one forward and one backward in turn (1F1B)."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from tonnage.split.devices import NO_WAY, Fabric
from tonnage.split.layout import Places
from tonnage.split.metrics import Evaluation, seconds_on


@dataclass(frozen=True, slots=True)
class Slot:
    """A device busy with one micro-batch."""

    device: int
    micro_batch: int
    is_backward: bool
    begin_seconds: float
    end_seconds: float


@dataclass(frozen=True, slots=True)
class Schedule:
    """A whole step, and how many micro-batches each device keeps at a time."""

    slots: tuple[Slot, ...]
    step_seconds: float
    in_flight: Mapping[int, int]


def training_step(evaluation: Evaluation, micro_batches: int, *, recompute: bool = False) -> Schedule:
    """Simulates a step of stages that can be done one after the other.

    A stage has as many micro-batches under way as there are devices from it to the end: n - i in stage i of n, where each
    has one device. Each device of it does its share of these forwards (no more than it has micro-batches), then a backward
    and a forward in turn. Each waits for what it reads; transfers take their time on quiet links. Inputs of all
    micro-batches wait at their node. At the end, devices that hold the same stage exchange their gradients.
    """
    return _Simulation(evaluation, micro_batches, recompute).run()


class _Simulation:
    def __init__(self, evaluation: Evaluation, micro_batches: int, recompute: bool) -> None:
        self._evaluation, self._recompute = evaluation, recompute
        self._stages = [place for place, _ in evaluation.segments]
        self._count = micro_batches
        self._fabric: Fabric = evaluation.fabric
        self._ends = evaluation.ends
        self._positions: dict[int, list[int]] = {place: [] for place in self._stages}  # of the ends
        for position in self._ends.positions:
            self._positions[evaluation.places[position]].append(position)
        self._bytes: dict[tuple[int, int], int] = {}
        for each in evaluation.answers:  # who answers whom also says who waits for whom on the way there
            pair = (each.target, each.source)
            self._bytes[pair] = self._bytes.get(pair, 0) + each.nbytes
        self._done: dict[tuple[int, int, bool], float] = {}  # by stage, micro-batch and direction

    def run(self) -> Schedule:
        workers = [
            _Worker(place, device, self._stage_seconds(place, device), *self._order(index, turn))
            for place, index in {place: index for index, place in enumerate(self._stages)}.items()
            for turn, device in enumerate(self._evaluation.holders(place))
        ]
        slots: list[Slot] = []
        while sum(self._go_on(worker, slots) for worker in workers):
            pass
        kept = {worker.device: worker.under_way for worker in workers}
        ends = [self._end(place, workers) for place in self._stages] + list(self._losses())
        return Schedule(tuple(slots), max(ends, default=0.0), kept)

    def _losses(self) -> Iterator[float]:
        """When what goes out of each micro-batch has arrived."""
        for (place, micro_batch, is_backward), moment in self._done.items():
            if not is_backward:
                yield self._ends.end(self._positions[place], moment, micro_batch)

    def _go_on(self, worker: _Worker, slots: list[Slot]) -> int:
        """Everything that a device can do by now; how many slots that are."""
        before = len(slots)
        while worker.order:
            micro_batch, is_backward = worker.order[0]
            ready = self._ready(worker, micro_batch, is_backward)
            if ready is None:
                break
            begin = max(ready, worker.free_seconds)
            worker.free_seconds = begin + worker.seconds[is_backward]
            self._done[worker.stage, micro_batch, is_backward] = worker.free_seconds
            slots.append(Slot(worker.device, micro_batch, is_backward, begin, worker.free_seconds))
            worker.order.popleft()
        return len(slots) - before

    def _stage_seconds(self, place: int, where: int) -> tuple[float, float]:
        device, own = self._fabric.devices[where], self._evaluation.operations_on(place)
        forward = sum(seconds_on(operation, device) for operation in own)
        backward = sum(seconds_on(operation, device, backward=True) for operation in own)
        return forward, backward + (forward if self._recompute else 0.0)

    def _order(self, index: int, turn: int) -> tuple[deque[tuple[int, bool]], int]:
        """What a device does one after the other, and how many micro-batches it has under way."""
        turns = [len(self._evaluation.holders(place)) for place in self._stages[index:]]
        own = range(turn, self._count, turns[0])
        first = min(-(-sum(turns) // turns[0]), len(own))
        order = deque((number, False) for number in own[:first])
        for place, number in enumerate(own):
            order.append((number, True))
            if first + place < len(own):
                order.append((own[first + place], False))
        return order, first

    def _ready(self, worker: _Worker, micro_batch: int, is_backward: bool) -> float | None:
        """When everything that a slot reads is there; None if something is not even begun."""
        moment = self._ends.begin(self._positions[worker.stage], micro_batch)
        if is_backward:
            own = self._done.get((worker.stage, micro_batch, False))
            if own is None:
                return None
            moment = own
        for (source, target), nbytes in self._bytes.items():
            sender, reader = (target, source) if is_backward else (source, target)
            if reader != worker.stage:
                continue
            made = self._done.get((sender, micro_batch, is_backward))
            if made is None:
                return None
            sent_by = self._evaluation.device(sender, micro_batch)
            moment = max(moment, made + self._fabric.transfer_seconds(sent_by, worker.device, nbytes))
        return moment

    def _end(self, place: int, workers: Sequence[_Worker]) -> float:
        """When all devices of a stage have exchanged their gradients and changed its weights."""
        done = max(worker.free_seconds for worker in workers if worker.stage == place)
        holders = self._evaluation.holders(place)
        return (
            done + self._exchange_seconds(place, holders) + max(self._update_seconds(place, each) for each in holders)
        )

    def _exchange_seconds(self, place: int, holders: Places) -> float:
        """From each to each other one, all at once: the busiest lane decides, and the longest latency comes on top."""
        nbytes = self._evaluation.gradient_bytes(place)
        ways = [self._fabric.ways.get(pair, NO_WAY) for pair in permutations(holders, 2)] if nbytes else []
        lanes = Counter(lane for way in ways for lane in way.lanes)
        seconds = [count * nbytes / self._fabric.lanes[lane].bytes_second for lane, count in lanes.items()]
        return max(seconds, default=0.0) + max((way.latency_seconds for way in ways), default=0.0)

    def _update_seconds(self, place: int, where: int) -> float:
        """Of the optimizer, once in a step."""
        device, own = self._fabric.devices[where], self._evaluation.operations_on(place)
        return sum(operation.update_seconds.get(device.kind, 0.0) for operation in own) / device.speed


@dataclass(slots=True)
class _Worker:
    """A device, what it has still to do, and when it is free."""

    stage: int
    device: int
    seconds: tuple[float, float]  # forward and backward of a micro-batch
    order: deque[tuple[int, bool]]
    under_way: int
    free_seconds: float = 0.0

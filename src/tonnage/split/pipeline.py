"""The time of a training step over stages: micro-batches, one forward and one backward in turn (1F1B)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tonnage.split.devices import Fabric
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

    Stage i of n does n - i forwards (no more than there are micro-batches), then a backward and a forward in turn. Each
    waits for what it reads; transfers take their time on quiet links. Inputs of all micro-batches wait at their node.
    """
    return _Simulation(evaluation, micro_batches, recompute).run()


class _Simulation:
    def __init__(self, evaluation: Evaluation, micro_batches: int, recompute: bool) -> None:
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
        self._seconds = {place: self._stage_seconds(evaluation, place, recompute) for place in self._stages}
        self._updates = {place: self._update_seconds(evaluation, place) for place in self._stages}
        self._done: dict[tuple[int, int, bool], float] = {}

    def _stage_seconds(self, evaluation: Evaluation, place: int, recompute: bool) -> tuple[float, float]:
        device = self._fabric.devices[place]
        own = evaluation.operations_on(place)
        forward = sum(seconds_on(operation, device) for operation in own)
        backward = sum(seconds_on(operation, device, backward=True) for operation in own)
        return forward, backward + (forward if recompute else 0.0)

    def _update_seconds(self, evaluation: Evaluation, place: int) -> float:
        """Of the optimizer, once in a step."""
        device, own = self._fabric.devices[place], evaluation.operations_on(place)
        return sum(operation.update_seconds.get(device.kind, 0.0) for operation in own) / device.speed

    def run(self) -> Schedule:
        orders = {place: self._order(index) for index, place in enumerate(self._stages)}
        at = dict.fromkeys(self._stages, 0)
        free = dict.fromkeys(self._stages, 0.0)
        slots: list[Slot] = []
        while True:
            moved = False
            for place in self._stages:
                while at[place] < len(orders[place]):
                    micro_batch, is_backward = orders[place][at[place]]
                    ready = self._ready(place, micro_batch, is_backward)
                    if ready is None:
                        break
                    begin = max(ready, free[place])
                    free[place] = begin + self._seconds[place][is_backward]
                    self._done[place, micro_batch, is_backward] = free[place]
                    slots.append(Slot(place, micro_batch, is_backward, begin, free[place]))
                    at[place] += 1
                    moved = True
            if not moved:
                break
        kept = {place: min(len(self._stages) - index, self._count) for index, place in enumerate(self._stages)}
        ends = [free[place] + self._updates[place] for place in self._stages]
        ends += [
            self._ends.end(self._positions[slot.device], slot.end_seconds) for slot in slots if not slot.is_backward
        ]
        return Schedule(tuple(slots), max(ends, default=0.0), kept)

    def _order(self, index: int) -> list[tuple[int, bool]]:
        first = min(len(self._stages) - index, self._count)
        order = [(number, False) for number in range(first)]
        for number in range(self._count):
            order.append((number, True))
            if first + number < self._count:
                order.append((first + number, False))
        return order

    def _ready(self, place: int, micro_batch: int, is_backward: bool) -> float | None:
        """When everything that a slot reads is there; None if something is not even begun."""
        moment = self._ends.begin(self._positions[place], micro_batch)
        if is_backward:
            own = self._done.get((place, micro_batch, False))
            if own is None:
                return None
            moment = own
        for (source, target), nbytes in self._bytes.items():
            sender, reader = (target, source) if is_backward else (source, target)
            if reader != place:
                continue
            made = self._done.get((sender, micro_batch, is_backward))
            if made is None:
                return None
            moment = max(moment, made + self._fabric.transfer_seconds(sender, reader, nbytes))
        return moment

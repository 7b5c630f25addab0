"""Samples on their way through the devices, one after the other, as the time-line of a page shows them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf

from tonnage.split.cluster_problem import Training
from tonnage.split.metrics import Evaluation, Transfer, seconds_on
from tonnage.split.pipeline import Slot, training_step

_LEAST_SAMPLES, _MOST_SAMPLES = 4, 16


@dataclass(frozen=True, slots=True)
class Move:
    """Tensors of one sample on their way from one device to another; gradients where `is_backward`."""

    source: int
    target: int
    sample: int
    is_backward: bool
    nbytes: int
    begin_seconds: float
    end_seconds: float


@dataclass(frozen=True, slots=True)
class Stream:
    """What devices and links do. A step of training, or `samples` of a stream that comes in once in a period."""

    slots: tuple[Slot, ...]
    moves: tuple[Move, ...]
    samples: int
    end_seconds: float
    is_whole: bool = True  # nothing is left out


def stream_of(evaluation: Evaluation, training: Training | None, most_bars: int) -> Stream:
    """With no more bars than `most_bars`, if need be without what comes last."""
    if evaluation.network.is_training:
        found = _training(evaluation, training or Training())
    else:
        found = _Inference(evaluation, _samples(evaluation, most_bars)).run()
    slots = tuple(sorted(found.slots, key=lambda slot: slot.begin_seconds)[:most_bars])
    moves = tuple(sorted(found.moves, key=lambda move: move.begin_seconds)[: most_bars - len(slots)])
    is_whole = len(slots) + len(moves) == len(found.slots) + len(found.moves)
    return Stream(slots, moves, found.samples, found.end_seconds, is_whole)


def _samples(evaluation: Evaluation, most_bars: int) -> int:
    """Enough to see the devices filled, and some more."""
    bars = len(evaluation.segments) + len({(each.source, each.target) for each in evaluation.transfers})
    filled = round(evaluation.latency_seconds / evaluation.period_seconds) if evaluation.period_seconds else 1
    return max(min(filled + _LEAST_SAMPLES, _MOST_SAMPLES, most_bars // bars), 1)


def _training(evaluation: Evaluation, training: Training) -> Stream:
    schedule = training_step(evaluation, training.micro_batches, recompute=training.recompute)
    sent: dict[tuple[int, int], int] = defaultdict(int)
    for each in evaluation.answers:
        sent[each.target, each.source] += each.nbytes
    moves = []
    for slot in schedule.slots:
        for pair, nbytes in sent.items():
            stages = pair[::-1] if slot.is_backward else pair
            source, target = (evaluation.device(stage, slot.micro_batch) for stage in stages)
            if source == slot.device:
                end = slot.end_seconds + evaluation.fabric.transfer_seconds(source, target, nbytes)
                moves.append(Move(source, target, slot.micro_batch, slot.is_backward, nbytes, slot.end_seconds, end))
    return Stream(schedule.slots, tuple(moves), training.micro_batches, schedule.step_seconds)


class _Inference:
    """Events in the order of time. A segment runs when its inputs are there and its device is free, the oldest sample
    first; tensors pass a lane one after the other."""

    def __init__(self, evaluation: Evaluation, samples: int) -> None:
        self._evaluation, self._samples = evaluation, samples
        self._segments = evaluation.segments
        self._seconds = [self._segment_seconds(place, positions) for place, positions in self._segments]
        segment_of = {position: number for number, (_, own) in enumerate(self._segments) for position in own}
        self._sends: list[list[Transfer]] = [[] for _ in self._segments]
        for each in evaluation.transfers:
            self._sends[segment_of[each.producer]].append(each)
        self._readers: dict[tuple[int, int], set[int]] = defaultdict(set)  # segments, by tensor and device
        for producer, consumer in evaluation.network.edges:
            if segment_of[producer] != segment_of[consumer]:
                self._readers[producer, evaluation.places[consumer]].add(segment_of[consumer])
        waits = Counter(reader for readers in self._readers.values() for reader in readers)
        self._missing = {(sample, reader): count for sample in range(samples) for reader, count in waits.items()}
        self._ready = {
            (sample, number): sample * evaluation.period_seconds + evaluation.ends.begin(positions)
            for sample in range(samples)
            for number, (_, positions) in enumerate(self._segments)
        }
        self._device_free: dict[int, float] = defaultdict(float)
        self._lane_free: dict[int, float] = defaultdict(float)
        self._events: list[tuple[float, bool, int, int]] = []  # moment, is it a beginning, sample, segment
        self._slots: list[Slot] = []
        self._moves: list[Move] = []

    def _segment_seconds(self, place: int, positions: Sequence[int]) -> float:
        operations, device = self._evaluation.network.operations, self._evaluation.fabric.devices[place]
        return sum(seconds_on(operations[position], device) for position in positions)

    def run(self) -> Stream:
        for sample in range(self._samples):
            for segment in range(len(self._segments)):
                if (sample, segment) not in self._missing:
                    heappush(self._events, (self._ready[sample, segment], True, sample, segment))
        while self._events:
            moment, is_beginning, sample, segment = heappop(self._events)
            if is_beginning:
                self._begin(moment, sample, segment)
            else:
                self._finish(moment, sample, segment)
        end = max((slot.end_seconds for slot in self._slots), default=0.0)
        return Stream(tuple(self._slots), tuple(self._moves), self._samples, end)

    def _begin(self, moment: float, sample: int, segment: int) -> None:
        device = self._evaluation.device(self._segments[segment][0], sample)
        if self._device_free[device] > moment:
            heappush(self._events, (self._device_free[device], True, sample, segment))
            return
        end = self._device_free[device] = moment + self._seconds[segment]
        self._slots.append(Slot(device, sample, False, moment, end))
        heappush(self._events, (end, False, sample, segment))

    def _finish(self, moment: float, sample: int, segment: int) -> None:
        for tensor, arrival in self._arrivals(moment, sample, segment):
            for reader in self._readers.get(tensor, ()):
                key = (sample, reader)
                self._ready[key] = max(self._ready[key], arrival)
                self._missing[key] -= 1
                if not self._missing[key]:
                    heappush(self._events, (self._ready[key], True, sample, reader))

    def _arrivals(self, moment: float, sample: int, segment: int) -> Iterator[tuple[tuple[int, int], float]]:
        """When each tensor of a segment is where it is read: at once by later segments of the same device."""
        fabric, (place, positions) = self._evaluation.fabric, self._segments[segment]
        for position in positions:
            yield (position, place), moment
        arrived: dict[tuple[int, int], float] = {}
        for each in self._sends[segment]:  # a device that passes a tensor on comes after the one it has it from
            pair = self._evaluation.device(each.source, sample), self._evaluation.device(each.target, sample)
            way = fabric.ways[pair]
            rate = min((fabric.lanes[lane].bytes_second for lane in way.lanes), default=inf)
            there = moment if each.source == place else arrived[each.producer, each.source]
            begin = max([there + way.latency_seconds, *(self._lane_free[lane] for lane in way.lanes)])
            end = arrived[each.producer, each.target] = begin + each.nbytes / rate
            for lane in way.lanes:
                self._lane_free[lane] = begin + each.nbytes / fabric.lanes[lane].bytes_second
            self._draw(Move(*pair, sample, False, each.nbytes, begin, end))
            yield (each.producer, each.target), end

    def _draw(self, move: Move) -> None:
        """One bar for tensors of a sample that follow each other at once."""
        last = self._moves[-1] if self._moves else None
        ends = (move.source, move.target, move.sample)
        if last and (last.source, last.target, last.sample) == ends and move.begin_seconds <= last.end_seconds + 1e-12:
            nbytes = last.nbytes + move.nbytes
            move = Move(*ends, False, nbytes, last.begin_seconds, max(move.end_seconds, last.end_seconds))
            self._moves.pop()
        self._moves.append(move)

"""Distributions as plain data for the script of a page: it shows the one that is chosen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

from tonnage.estimate.page_text import printable
from tonnage.split.devices import Device, Fabric
from tonnage.split.distribution import Distribution
from tonnage.split.layout import Layout
from tonnage.split.metrics import Evaluation, Metrics
from tonnage.split.network import Operation
from tonnage.split.page_boxes import Boxes, short_kind
from tonnage.split.page_stream import Stream, stream_of
from tonnage.split.page_words import arrowed
from tonnage.split.pool import Pool, evaluate, measure

_MOST_BARS = 24_000  # of all time-lines together
_TICKS = 10_000  # of a time-line's length


class Views:
    """The distributions of a page, each once, in the order in which they are met."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._numbers: dict[Layout, int] = {}
        self._metrics: list[Metrics] = []
        self._places = {device.name: place for place, device in enumerate(pool.fabric.devices)}

    def number_of(self, distribution: Distribution) -> int:
        """Its position among the views."""
        layout = self._layout(distribution)
        if layout not in self._numbers:
            self._numbers[layout] = len(self._numbers)
            pool = self._pool
            self._metrics.append(distribution.metrics or measure(pool.network, pool.fabric, layout, pool.training))
        return self._numbers[layout]

    def _layout(self, distribution: Distribution) -> Layout:
        operations = self._pool.network.operations
        places = tuple(self._places[distribution.assignment[operation.id]] for operation in operations)
        replicas = ((first, *further) for first, further in distribution.replicas.items())
        return Layout(places, tuple(tuple(self._places[name] for name in holders) for holders in replicas))

    @property
    def used(self) -> list[int]:
        """Devices that any of them uses."""
        return sorted({device for layout in self._numbers for device in layout.devices})

    def data(self, boxes: Boxes) -> dict[str, Any]:
        """Everything that the script needs."""
        pool, used = self._pool, self.used
        network = pool.network
        most_bars = _MOST_BARS // max(len(self._numbers), 1)
        return {
            "training": network.is_training,
            "devices": [_device(pool.fabric.devices[place]) for place in used],
            "lanes": [{"name": printable(arrowed(each.name)), "rate": each.bytes_second} for each in pool.fabric.lanes],
            "operations": _operations(network.operations),
            "boxes": [list(members) for members in boxes.members],
            "edges": [end for edge in network.edges for end in edge],
            "views": [
                _view(pool, layout, metrics, used, most_bars)
                for layout, metrics in zip(self._numbers, self._metrics, strict=True)
            ],
        }


def _device(device: Device) -> dict[str, Any]:
    memory = device.memory_bytes if isfinite(device.memory_bytes) else None
    return {"name": printable(device.name), "kind": printable(device.kind), "speed": device.speed, "memory": memory}


def _operations(operations: Sequence[Operation]) -> dict[str, Any]:
    """Columns; words by their number, since many operations share them."""
    words: dict[str, int] = {}

    def numbered(texts: Iterable[object]) -> list[int]:
        return [words.setdefault(printable(text), len(words)) for text in texts]

    return {
        "id": [printable(each.id) for each in operations],
        "name": numbered("" if each.name == short_kind(each) else each.name for each in operations),
        "kind": numbered(map(short_kind, operations)),
        "output": [each.output_bytes for each in operations],
        "weights": [each.weight_bytes for each in operations],
        "words": list(words),
    }


def _view(pool: Pool, layout: Layout, metrics: Metrics, used: Sequence[int], most_bars: int) -> dict[str, Any]:
    evaluation = evaluate(pool.network, pool.fabric, layout, pool.training)
    number = {place: index for index, place in enumerate(used)}
    return {
        "places": [number[place] for place in layout.places],
        "replicas": [[number[device] for device in holders] for holders in layout.replicas],
        "metrics": _metrics(metrics),
        "bottleneck": printable(arrowed(metrics.bottleneck)),
        "busy": _by_number(evaluation.busy_seconds, number),
        "memory": [
            [number[place], metrics.memory_bytes[pool.fabric.devices[place].name]] for place in sorted(layout.devices)
        ],
        "lanes": [[lane, _short(seconds)] for lane, seconds in sorted(evaluation.lane_seconds.items())],
        "traffic": _traffic(evaluation, number),
        "cuts": [
            [
                each.producer,
                number[each.target],
                _short(pool.fabric.transfer_seconds(each.source, each.target, each.nbytes)),
            ]
            for each in evaluation.transfers
        ],
        "time": _time(stream_of(evaluation, pool.training, most_bars), pool.fabric, number, metrics),
    }


def _metrics(metrics: Metrics) -> dict[str, float]:
    return {
        "period": metrics.period_seconds,
        "latency": metrics.latency_seconds,
        "energy": metrics.energy_joules,
        "step": metrics.step_seconds,
        "moved": metrics.moved_bytes,
        "share": metrics.memory_share,
    }


def _by_number(seconds: Mapping[int, float], number: Mapping[int, int]) -> list[list[float]]:
    return [[number[place], _short(each)] for place, each in sorted(seconds.items())]


def _traffic(evaluation: Evaluation, number: Mapping[int, int]) -> list[list[int]]:
    """Source, target and bytes of one sample."""
    found: dict[tuple[int, int], float] = {}
    for source, target, nbytes in evaluation.traffic:
        pair = number[source], number[target]
        found[pair] = found.get(pair, 0.0) + nbytes
    return [[*pair, round(nbytes)] for pair, nbytes in found.items()]


def _short(seconds: float) -> float:
    return float(f"{seconds:.5g}")


def _time(stream: Stream, fabric: Fabric, number: Mapping[int, int], metrics: Metrics) -> dict[str, Any]:
    """Bars as numbers one after the other: device, sample (twice it, and one more if backward), begin and length in parts
    of the whole; of moves source and target, and whether they pass the lane that sets the period."""
    end = stream.end_seconds or 1.0
    rows = dict.fromkeys(slot.device for slot in stream.slots)
    bars: list[int] = []
    for slot in stream.slots:
        bars += [number[slot.device], 2 * slot.micro_batch + slot.is_backward]
        bars += _span(slot.begin_seconds, slot.end_seconds, end)
    moves: list[int] = []
    for move in stream.moves:
        lanes = fabric.ways[move.source, move.target].lanes
        narrow = any(fabric.lanes[lane].name == metrics.bottleneck for lane in lanes)
        moves += [number[move.source], number[move.target], 2 * move.sample + move.is_backward]
        moves += [*_span(move.begin_seconds, move.end_seconds, end), int(narrow)]
    return {
        "end": end,
        "ticks": _TICKS,
        "samples": stream.samples,
        "whole": stream.is_whole,
        "rows": [number[place] for place in rows],
        "bars": bars,
        "moves": moves,
    }


def _span(begin: float, end: float, whole: float) -> list[int]:
    start = round(_TICKS * begin / whole)
    return [start, max(round(_TICKS * end / whole) - start, 1)]

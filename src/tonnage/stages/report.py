"""What a run measured, as plain data: for tables, for runtime statistics, and for the database."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tonnage.stages.timings import Timings, Transferred


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The median of many, and what 19 of 20 stay below."""

    median: float
    p95: float
    count: int

    @staticmethod
    def of(values: Iterable[float]) -> Spread:
        found = sorted(values)
        if not found:
            return Spread(median=0.0, p95=0.0, count=0)
        return Spread(median=statistics.median(found), p95=found[min(len(found) - 1, round(0.95 * len(found)))],
                      count=len(found))  # fmt: skip


NOTHING = Spread(median=0.0, p95=0.0, count=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimes:
    """One worker. Seconds are for one sample or micro-batch, those of the update for one step."""

    device: str
    stage: str  # the device of the assignment that it ran for: another one where stages are replicated
    segments: int
    operations: int
    weight_bytes: int
    peak_bytes: int  # of the whole process, or what torch allocated on its GPU
    forward_seconds: Spread
    backward_seconds: Spread
    update_seconds: Spread
    processor_seconds: Spread  # of the forward, in its thread: without waiting for a core, and without a pace


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTimes:
    """One direction between two devices. Bytes and seconds are for one sample; seconds from first to last byte."""

    source: str
    target: str
    bytes_sample: float
    seconds: Spread
    bytes_update: float = 0.0  # gradients of weights that both hold, for one step
    update_seconds: Spread = NOTHING
    messages_sample: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """One distribution that ran. `period_seconds` is from one sample to the next in the steady state, or of a step."""

    network: str
    mode: str  # inference or training
    transport: str
    samples: int  # in the steady state, or steps
    micro_batches: int
    period_seconds: Spread
    latency_seconds: Spread  # of one sample alone, from its input to its output at the controller; empty for training
    stages: tuple[StageTimes, ...]
    links: tuple[LinkTimes, ...]
    losses: tuple[float, ...] = ()  # mean of each step
    is_equal: bool | None = None  # to the last bit, to the network in one process; None if it was not compared
    largest_difference: float | None = None
    total_seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def period_of(moments: Sequence[float], lag: int = 0) -> Spread:
    """From one completion to the next, over a quarter of all at a time: samples may come out several at once."""
    lag = lag or max(1, len(moments) // 4)
    return Spread.of((late - early) / lag for early, late in zip(moments, moments[lag:], strict=False))


def seconds_by(timings: Timings, phase: str, numbers: range, *, of_processor: bool = False) -> Spread:
    """For each sample, of all its segments."""
    sums: dict[int, float] = defaultdict(float)
    for row in timings.computed:
        if row.phase == phase and row.number in numbers:
            sums[row.number] += row.processor_seconds if of_processor else row.seconds
    return Spread.of(sums.values())


def links_of(timings: Mapping[str, Timings], samples: range, steps: range) -> tuple[LinkTimes, ...]:
    """Of all pairs that have sent something."""
    return tuple(
        _link_times(source, target, [row for row in rows.transferred if row.source == source], samples, steps)
        for target, rows in timings.items()
        for source in sorted({row.source for row in rows.transferred})
    )


def _link_times(source: str, target: str, rows: list[Transferred], samples: range, steps: range) -> LinkTimes:
    messages = [row for row in rows if row.kind != "weight" and row.number in samples]
    of_samples = _sums(messages)
    of_steps = _sums(row for row in rows if row.kind == "weight" and row.number in steps)
    return LinkTimes(
        source=source,
        target=target,
        bytes_sample=_mean(nbytes for nbytes, _ in of_samples),
        seconds=Spread.of(seconds for _, seconds in of_samples),
        bytes_update=_mean(nbytes for nbytes, _ in of_steps),
        update_seconds=Spread.of(seconds for _, seconds in of_steps),
        messages_sample=len(messages) / max(len(of_samples), 1),
    )


def _sums(rows: Iterable[Transferred]) -> list[tuple[int, float]]:
    """Bytes and seconds of each sample, or step."""
    sums: dict[int, tuple[int, float]] = {}
    for row in rows:
        nbytes, seconds = sums.get(row.number, (0, 0.0))
        sums[row.number] = (nbytes + row.nbytes, seconds + row.seconds)
    return list(sums.values())


def _mean(values: Iterable[int]) -> float:
    found = list(values)
    return statistics.fmean(found) if found else 0.0

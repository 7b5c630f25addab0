"""Times the parts of a step on the device's own time-line, without making the host wait between them."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any, NamedTuple

import torch

from tonnage.benchmark.workloads.step import Step

PARTS = ("copy", "forward", "backward", "optimize", "read")


class StepTimes(NamedTuple):
    """Seconds of one step, of its parts, and until the host had launched everything of it."""

    step: float
    parts: tuple[float, ...]
    host: float


class Clock:
    """Marks moments on the device's time-line; they can be compared once `wait` has returned."""

    def __init__(self, device: str) -> None:
        self._is_cuda = device == "cuda"

    def mark(self) -> Any:
        if not self._is_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def wait(self) -> None:
        if self._is_cuda:
            torch.cuda.synchronize()

    def between(self, first: Any, second: Any) -> float:
        return float(first.elapsed_time(second) / 1000 if self._is_cuda else second - first)


def time_steps(step: Step, count: int, device: str) -> list[StepTimes]:
    """Run the step so many times in a row."""
    clock = Clock(device)
    clock.wait()
    runs = [_run(step, clock) for _ in range(count)]
    clock.wait()
    return [_times(marks, host, clock) for marks, host in runs]


def _run(step: Step, clock: Clock) -> tuple[list[Any], float]:
    *launching, reading = (getattr(step, part) for part in PARTS)
    started = time.perf_counter()
    marks = [clock.mark()]
    for part in launching:
        part()
        marks.append(clock.mark())
    host = time.perf_counter() - started
    reading()  # which waits for the device
    marks.append(clock.mark())
    return marks, host


def _times(marks: list[Any], host: float, clock: Clock) -> StepTimes:
    parts = tuple(clock.between(first, second) for first, second in pairwise(marks))
    return StepTimes(clock.between(marks[0], marks[-1]), parts, host)

"""Reads torch's profile of a GPU: which kernel was launched while which marked range was open on the host."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import torch

MARK = "tonnage#"  # and the number of the call
_COPIES = ("Memcpy", "Memset")


class Kernel(NamedTuple):
    """One launch on the device; copies and fills count as well."""

    name: str
    seconds: float
    start_ns: int


class Launches(NamedTuple):
    """Kernels by the number of the call that launched them, and all kernels together, launched by calls or not."""

    by_call: Mapping[int, Sequence[Kernel]]
    kernel_seconds: float


class Mark(NamedTuple):
    """When a call's range was open on the host."""

    start_ns: int
    end_ns: int
    call: int


Marks: TypeAlias = dict[int, list[Mark]]  # by thread
_Launch: TypeAlias = tuple[int, int]  # thread and moment


class Profile:
    """What the profiler has seen, once it has ended."""

    def __init__(self, profiler: Any) -> None:
        self._profiler = profiler

    def launches(self) -> Launches:
        return read_events(self._profiler.profiler.kineto_results.events())


@contextmanager
def profiled() -> Iterator[Profile]:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as profiler:
        yield Profile(profiler)


def read_events(events: Iterable[Any]) -> Launches:
    """Kernels and copies by the call in whose range they were launched; `events` are kineto's."""
    marks: Marks = {}
    launches: dict[int, _Launch] = {}
    kernels: list[tuple[int, Kernel]] = []
    cuda = torch.autograd.DeviceType.CUDA  # type: ignore[attr-defined]  # made by C++
    for event in events:
        name = event.name()
        if event.device_type() == cuda:
            if not name.startswith(MARK):  # ranges are also shown on the device's own line
                kernels.append((event.correlation_id(), Kernel(name, event.duration_ns() * 1e-9, event.start_ns())))
        elif name.startswith(MARK):
            start = event.start_ns()
            mark = Mark(start, start + event.duration_ns(), int(name.removeprefix(MARK)))
            marks.setdefault(event.start_thread_id(), []).append(mark)
        elif name.startswith("cu"):  # a call of the driver or the runtime
            launches[event.correlation_id()] = (event.start_thread_id(), event.start_ns())
    busy = sum(kernel.seconds for _, kernel in kernels if not kernel.name.startswith(_COPIES))
    return Launches(_by_call(kernels, launches, marks), busy)


def _by_call(
    kernels: Iterable[tuple[int, Kernel]], launches: Mapping[int, _Launch], marks: Marks
) -> dict[int, list[Kernel]]:
    ordered = {thread: sorted(ranges) for thread, ranges in marks.items()}
    everywhere = sorted(mark for ranges in marks.values() for mark in ranges)
    found: dict[int, list[Kernel]] = {}
    for correlation, kernel in kernels:
        if correlation in launches:
            thread, moment = launches[correlation]
            call = _open_at(ordered.get(thread, everywhere), moment)
            if call is not None:
                found.setdefault(call, []).append(kernel)
    return found


def _open_at(marks: Sequence[Mark], moment: int) -> int | None:
    """The call whose range was open; ranges of one thread do not overlap."""
    position = bisect_right(marks, moment, key=lambda mark: mark.start_ns) - 1
    if position < 0 or moment > marks[position].end_ns:
        return None
    return marks[position].call

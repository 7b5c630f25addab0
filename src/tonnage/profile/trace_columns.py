"""The events of a trace as columns: a few bytes each, whatever the trace says about them.

Rows of the host are what its threads did (operators, marked ranges, calls of the driver); rows of the device are kernels
and copies, joined to the call that launched them by their correlation.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from tonnage.profile.trace_names import BACKWARD_PREFIX, MODULE_PREFIX, Names, copy_kind, range_kind

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


_LARGEST = 2.0**62  # microseconds since whenever, bytes and numbers are far below


class Kind(IntEnum):
    """What a row of the host is."""

    OPERATOR = 0
    LAUNCH = 1
    MODULE = 2
    BACKWARD = 3
    OPTIMIZER = 4
    DATA = 5
    STEP = 6
    OTHER = 7  # a range that the program marked


class Work(IntEnum):
    """What a row of the device is."""

    KERNEL = 0
    H2D = 1
    D2H = 2


@dataclass(slots=True)
class HostRows:
    start: array[float] = field(default_factory=lambda: array("d"))  # microseconds since the trace's first event
    duration: array[float] = field(default_factory=lambda: array("f"))
    thread: array[int] = field(default_factory=lambda: array("H"))
    name: array[int] = field(default_factory=lambda: array("i"))
    kind: array[int] = field(default_factory=lambda: array("b"))


@dataclass(slots=True)
class DeviceRows:
    start: array[float] = field(default_factory=lambda: array("d"))
    duration: array[float] = field(default_factory=lambda: array("f"))
    name: array[int] = field(default_factory=lambda: array("i"))
    work: array[int] = field(default_factory=lambda: array("b"))
    correlation: array[int] = field(default_factory=lambda: array("q"))
    bytes: array[int] = field(default_factory=lambda: array("q"))
    pinned: array[int] = field(default_factory=lambda: array("b"))
    device: array[int] = field(default_factory=lambda: array("h"))


@dataclass(slots=True)
class Flows:
    """Ends of arrows from a forward operator to its backward: (arrow, thread, moment) on either side."""

    arrow: array[int] = field(default_factory=lambda: array("q"))
    thread: array[int] = field(default_factory=lambda: array("H"))
    at: array[float] = field(default_factory=lambda: array("d"))


class TraceColumns:
    """Takes events one by one; afterwards the columns are complete."""

    def __init__(self) -> None:
        self.names = Names()
        self.host, self.device = HostRows(), DeviceRows()
        self.forward_ends, self.backward_ends = Flows(), Flows()
        self.launch_row = array("i")  # row of the host, and its correlation
        self.launch_correlation = array("q")
        self.threads: dict[tuple[str, str], int] = {}
        self.origin: float | None = None
        self.device_names: dict[int, str] = {}

    def read(self, events: Iterable[Mapping[str, Any]]) -> TraceColumns:
        for event in events:
            self.add(event)
        return self

    def add(self, event: Mapping[str, Any]) -> None:
        phase = event.get("ph")
        if phase == "X":
            self._add_span(event, str(event.get("cat", "")))
        elif phase in ("s", "f") and event.get("cat") == "fwdbwd":
            self._add_flow(event, self.forward_ends if phase == "s" else self.backward_ends)

    def _add_span(self, event: Mapping[str, Any], category: str) -> None:
        start, duration = event.get("ts"), event.get("dur", 0)
        if not _is_moment(start) or not _is_moment(duration):
            return
        name = str(event.get("name", ""))
        if category in ("kernel", "gpu_memcpy", "gpu_memset"):
            self._add_work(event, name, start, duration)
        elif category in ("cuda_runtime", "cuda_driver"):
            correlation = _number(event, "correlation")
            if correlation and ("Launch" in name or "Mem" in name):
                self.launch_row.append(len(self.host.start))
                self.launch_correlation.append(correlation)
                self._add_row(event, name, start, duration, Kind.LAUNCH)
        elif category == "cpu_op":
            backward = name.startswith(BACKWARD_PREFIX)
            self._add_row(event, name, start, duration, Kind.BACKWARD if backward else Kind.OPERATOR)
        elif category == "user_annotation" or (category == "python_function" and name.startswith(MODULE_PREFIX)):
            self._add_row(event, name, start, duration, Kind[range_kind(name)])

    def _add_row(self, event: Mapping[str, Any], name: str, start: float, duration: float, kind: Kind) -> None:
        rows = self.host
        rows.start.append(self._moment(start))
        rows.duration.append(duration)
        rows.thread.append(self._thread(event))
        rows.name.append(self.names.index(name))
        rows.kind.append(kind)

    def _add_work(self, event: Mapping[str, Any], name: str, start: float, duration: float) -> None:
        rows, copy = self.device, copy_kind(name)
        rows.start.append(self._moment(start))
        rows.duration.append(duration)
        rows.name.append(self.names.index(name))
        rows.work.append(Work[copy.direction] if copy.direction else Work.KERNEL)
        rows.correlation.append(_number(event, "correlation"))
        rows.bytes.append(_number(event, "bytes") if copy.direction else 0)
        rows.pinned.append(copy.pinned)
        rows.device.append(_number(event, "device") % 32768)

    def _add_flow(self, event: Mapping[str, Any], ends: Flows) -> None:
        if _is_moment(event.get("ts")) and _is_moment(event.get("id")):
            ends.arrow.append(int(event["id"]))
            ends.thread.append(self._thread(event))
            ends.at.append(self._moment(event["ts"]))

    def _moment(self, microseconds: float) -> float:
        if self.origin is None:
            self.origin = float(microseconds)
        return microseconds - self.origin

    def _thread(self, event: Mapping[str, Any]) -> int:
        return self.threads.setdefault((str(event.get("pid")), str(event.get("tid"))), len(self.threads) % 65536)


def _number(event: Mapping[str, Any], name: str) -> int:
    arguments = event.get("args")
    value = arguments.get(name, 0) if isinstance(arguments, dict) else 0
    return int(value) if _is_moment(value) else 0


def _is_moment(value: object) -> TypeGuard[float]:
    """A number that the columns can hold; a damaged trace may say anything."""
    return isinstance(value, int | float) and abs(value) < _LARGEST

"""From the columns of a trace to its steps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from tonnage.errors import InvalidFile
from tonnage.profile.context_tree import Phase, Places, find_places
from tonnage.profile.json_stream import TraceFile
from tonnage.profile.report import TracedStep
from tonnage.profile.step_bounds import host_steps
from tonnage.profile.timeline import Busy, shares, step_of, with_lead
from tonnage.profile.trace_columns import Floats, Ints, Kind, TraceColumns, Work
from tonnage.profile.trace_tables import DeviceView, TraceTables

_SECOND = 1e6  # traces count microseconds


class TraceAnalysis:
    """Answers about one trace. `skip` steps at the beginning do not count, and at most `most` after them do."""

    def __init__(self, columns: TraceColumns, skip: int = 0, most: int | None = None) -> None:
        self._columns = columns
        bounds = host_steps(columns)
        if len(bounds) < 2:
            raise InvalidFile("the trace holds nothing that takes time: no operators, no kernels")
        self._bounds = bounds[min(skip, len(bounds) - 2) :][: None if most is None else most + 1]
        self._places: Places = find_places(columns)
        self._start: Floats = np.frombuffer(columns.host.start, np.float64)
        self._kind = np.frombuffer(columns.host.kind, np.int8)

    @property
    def on_gpu(self) -> bool:
        return len(self._columns.device.start) > 0

    @property
    def are_marked(self) -> bool:
        """The profiler has said where steps begin; else they are guessed."""
        return bool((self._kind == Kind.STEP).any())

    @property
    def count(self) -> int:
        return len(self._bounds) - 1

    @cached_property
    def gpu_count(self) -> int:
        return len(np.unique(np.frombuffer(self._columns.device.device, np.int16))) if self.on_gpu else 0

    # -- steps --------------------------------------------------------------------------------------------------------

    @cached_property
    def steps(self) -> tuple[TracedStep, ...]:
        return tuple(self._device_steps() if self.on_gpu else self._host_steps())

    @cached_property
    def _host_step(self) -> Ints:
        return step_of(self._start, self._bounds)

    @cached_property
    def _loader_spans(self) -> tuple[Floats, Floats]:
        rows = np.flatnonzero(self._kind == Kind.DATA)
        starts = self._start[rows]
        return starts, starts + np.frombuffer(self._columns.host.duration, np.float32)[rows]

    def _loader_seconds(self) -> Floats:
        starts, ends = self._loader_spans
        return Busy(starts, ends).between(self._bounds[:-1], self._bounds[1:]) / _SECOND

    @cached_property
    def _node_phase(self) -> Ints:
        return np.array(self._places.tree.phase, np.int64)

    def _host_steps(self) -> list[TracedStep]:
        """Parts of the host's threads that compute: the one whose steps are marked, and those of the autograd engine."""
        threads = np.frombuffer(self._columns.host.thread, np.uint16)
        main = np.bincount(threads, minlength=1).argmax()
        computing = set(threads[np.isin(self._kind, (Kind.STEP, Kind.BACKWARD, Kind.OPTIMIZER))].tolist()) or {main}
        counted = np.isin(threads, sorted(computing)) & ~np.isin(self._kind, (Kind.STEP, Kind.OTHER))
        rows = np.flatnonzero(counted & (self._host_step >= 0))
        cell = self._host_step[rows] * len(Phase) + self._node_phase[self._places.node[rows]]
        weights = np.clip(self._places.self_microseconds[rows], 0, None)
        parts = np.bincount(cell, weights, self.count * len(Phase)).reshape(self.count, len(Phase)) / _SECOND
        seconds, loader = np.diff(self._bounds) / _SECOND, self._loader_seconds()
        return [_host_row(*row) for row in zip(seconds.tolist(), parts.tolist(), loader.tolist(), strict=True)]

    @cached_property
    def _device(self) -> DeviceView:
        rows, columns = self._columns.device, self._columns
        number = np.frombuffer(rows.device, np.int16)
        duration = np.frombuffer(rows.duration, np.float32)
        busiest = max(np.unique(number).tolist(), key=lambda n: float(duration[number == n].sum()))
        own = np.flatnonzero(number == busiest)
        start = np.frombuffer(rows.start, np.float64)[own]
        launch = self._launch_rows(np.frombuffer(rows.correlation, np.int64)[own])
        # What was launched by nobody that the trace knows happened when it happened.
        moment = np.where(launch >= 0, self._start[launch] if len(self._start) else 0.0, start)
        node = np.where(launch >= 0, self._places.node[launch] if len(self._start) else 0, int(Phase.FORWARD))
        phase = self._node_phase[node]
        phase[phase == Phase.DATA] = Phase.FORWARD
        work = np.frombuffer(columns.device.work, np.int8)[own].astype(np.int64)
        step, is_earlier = step_of(moment, self._bounds), moment < self._bounds[0]
        end = start + duration[own]
        return DeviceView(start, end, with_lead(start, end, moment), work, phase, node, own, step, is_earlier)

    def _launch_rows(self, correlations: Ints) -> Ints:
        """The row of the host that launched each; -1 for none."""
        known = np.frombuffer(self._columns.launch_correlation, np.int64)
        if not len(known):
            return np.full(len(correlations), -1, np.int64)
        order = np.argsort(known, kind="stable")
        at = np.minimum(np.searchsorted(known[order], correlations), len(known) - 1)
        row = np.frombuffer(self._columns.launch_row, np.int32)[order[at]].astype(np.int64)
        return np.where(known[order[at]] == correlations, row, -1)

    @cached_property
    def _device_bounds(self) -> Floats:
        """A step ends on the device when the last thing that it launched ends; the device may lag behind the host."""
        device, bounds = self._device, np.array(self._bounds)
        ends = np.zeros(self.count)
        np.maximum.at(ends, device.step[device.step >= 0], device.end[device.step >= 0])
        earlier = device.end[device.is_earlier]
        first = max(bounds[0], float(earlier.max())) if len(earlier) else bounds[0]
        return np.maximum.accumulate(np.concatenate(([first], np.where(ends > 0, ends, bounds[1:]))))

    def _device_steps(self) -> list[TracedStep]:
        device, bounds = self._device, self._device_bounds
        is_kernel = device.work == Work.KERNEL
        kernels = Busy(device.begin[is_kernel], device.end[is_kernel])
        everything = Busy(device.begin, device.end)
        parts = {
            phase: self._kernel_seconds(is_kernel & (device.phase == phase), is_kernel) for phase in list(Phase)[:3]
        }
        copies = {work: self._copied(work, kernels) for work in (Work.H2D, Work.D2H)}
        idle = np.diff(bounds) - everything.between(bounds[:-1], bounds[1:])
        waits = np.minimum(self._waits(everything), idle)
        loader = self._loader_seconds()
        return [
            TracedStep(
                step_seconds=float(bounds[n + 1] - bounds[n]) / _SECOND,
                forward_seconds=float(parts[Phase.FORWARD][n]),
                backward_seconds=float(parts[Phase.BACKWARD][n]),
                optimizer_seconds=float(parts[Phase.OPTIMIZER][n]),
                h2d_seconds=float(copies[Work.H2D].exposed[n]),
                d2h_seconds=float(copies[Work.D2H].exposed[n]),
                h2d_busy_seconds=float(copies[Work.H2D].busy[n]),
                d2h_busy_seconds=float(copies[Work.D2H].busy[n]),
                h2d_bytes=int(copies[Work.H2D].bytes[n]),
                d2h_bytes=int(copies[Work.D2H].bytes[n]),
                pinned_bytes=int(copies[Work.H2D].pinned[n] + copies[Work.D2H].pinned[n]),
                data_wait_seconds=float(waits[n]) / _SECOND,
                idle_seconds=float(idle[n] - waits[n]) / _SECOND,
                loader_seconds=float(loader[n]),
            )
            for n in range(self.count)
        ]

    def _kernel_seconds(self, wanted: np.ndarray[tuple[int], np.dtype[np.bool_]], kernels: object) -> Floats:
        """Of the time that kernels take together, what belongs to those wanted, in each step."""
        device, chosen = self._device, np.flatnonzero(np.asarray(kernels))
        begin, end = shares(device.begin[chosen], device.end[chosen])
        own = wanted[chosen]
        return self._inside_steps(begin[own], end[own])

    def _inside_steps(self, begin: Floats, end: Floats) -> Floats:
        """Seconds of intervals that do not overlap, in each step."""
        bounds = self._device_bounds
        return Busy(begin, end).between(bounds[:-1], bounds[1:]) / _SECOND

    def _copied(self, work: Work, kernels: Busy) -> _Copied:
        device, rows = self._device, self._columns.device
        both = np.flatnonzero(device.work != Work.KERNEL)
        begin, end = shares(device.begin[both], device.end[both])
        own = device.work[both] == work
        mine = np.flatnonzero(device.work == work)
        bounds = self._device_bounds
        busy = Busy(device.start[mine], device.end[mine]).between(bounds[:-1], bounds[1:]) / _SECOND
        hidden = self._sum_by_step(begin[own], kernels.between(begin[own], end[own])) / _SECOND
        size = np.frombuffer(rows.bytes, np.int64)[device.row[mine]]
        pinned = np.where(np.frombuffer(rows.pinned, np.int8)[device.row[mine]] > 0, size, 0)
        return _Copied(
            busy=busy,
            exposed=np.clip(self._inside_steps(begin[own], end[own]) - hidden, 0, None),
            bytes=self._sum_by_step(device.start[mine], size),
            pinned=self._sum_by_step(device.start[mine], pinned),
        )

    def _sum_by_step(self, moments: Floats, weights: Floats | Ints) -> Floats:
        step = step_of(moments, self._device_bounds)
        inside = step >= 0
        return np.asarray(np.bincount(step[inside], weights[inside], self.count), np.float64)

    def _waits(self, everything: Busy) -> Floats:
        """Time in which the host waits for its loader while the device has nothing to do."""
        starts, ends = self._loader_spans
        bounds, waits = self._device_bounds, np.zeros(self.count)
        for n in range(self.count):
            begin, end = np.clip(starts, bounds[n], bounds[n + 1]), np.clip(ends, bounds[n], bounds[n + 1])
            waits[n] = (end - begin - everything.between(begin, end)).sum()
        return waits

    @cached_property
    def tables(self) -> TraceTables:
        """By operator, by module and by stack."""
        device = self._device if self.on_gpu else None
        inside = (self._host_step >= 0) & ~np.isin(self._kind, (Kind.STEP, Kind.OTHER))
        return TraceTables(self._columns, self._places, inside, device, self.count)


@dataclass(frozen=True, slots=True)
class _Copied:
    busy: Floats
    exposed: Floats
    bytes: Floats
    pinned: Floats


def _host_row(seconds: float, parts: list[float], loader: float) -> TracedStep:
    """Threads that work at the same time could fill more than a step: then they share it."""
    scale = min(1.0, seconds / sum(parts)) if sum(parts) > 0 else 1.0
    forward, backward, optimizer, data = (part * scale for part in parts)
    return TracedStep(
        step_seconds=seconds,
        forward_seconds=forward,
        backward_seconds=backward,
        optimizer_seconds=optimizer,
        data_wait_seconds=data,
        idle_seconds=max(seconds - sum(parts) * scale, 0.0),
        loader_seconds=loader,
    )


def analyse(path: str | Path, skip: int = 0, most: int | None = None) -> TraceAnalysis:
    """Read a trace; raises `InvalidFile` or `NotFound`."""
    columns = TraceColumns().read(TraceFile(path).events())
    try:
        return TraceAnalysis(columns, skip, most)
    except InvalidFile as error:
        raise InvalidFile(f"{path}: {error.message}", error.hint) from None

"""Joins what the clock, the profiler and the driver saw into Indicators.

The profiler slows the host down and the clock does not, so the length of a step and the wait for data are the clock's. What
kernels and copies take on a GPU is the profiler's: they do not become slower by being watched. The rest of the step is
idle. On a CPU the profiler makes small operators much longer than large ones: there the spans of backward and optimizer are
the clock's too, and the trace only tells how much of the rest is forward and how much idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from tonnage.profile.report import ClockedStep, TracedStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Means of a step; they add up to it."""

    step_seconds: float
    forward_seconds: float
    backward_seconds: float
    optimizer_seconds: float
    h2d_seconds: float
    d2h_seconds: float
    data_wait_seconds: float
    idle_seconds: float

    @property
    def busy_seconds(self) -> float:
        return self.step_seconds - self.data_wait_seconds - self.idle_seconds


def mean_parts(traced: Sequence[TracedStep], clocked: Sequence[ClockedStep], *, on_gpu: bool) -> Parts:
    """Of steps under the profiler and, if there are any, steps beside it."""
    parts = _means(traced)
    if not clocked:
        return parts
    step = fmean(row.step_seconds for row in clocked)
    if not on_gpu:
        return _on_host(parts, clocked, step)
    wait = fmean(row.loader_seconds for row in clocked) * _exposed_share(traced)
    scale = min(1.0, step / parts.busy_seconds) if parts.busy_seconds > 0 else 1.0
    busy = parts.busy_seconds * scale
    wait = max(min(wait, step - busy), 0.0)
    return replace(
        _scaled(parts, scale), step_seconds=step, data_wait_seconds=wait, idle_seconds=max(step - busy - wait, 0.0)
    )


def _on_host(parts: Parts, clocked: Sequence[ClockedStep], step: float) -> Parts:
    backward = fmean(row.backward_span_seconds for row in clocked)
    optimizer = fmean(row.optimizer_span_seconds for row in clocked)
    wait = max(min(fmean(row.loader_seconds for row in clocked), step - backward - optimizer), 0.0)
    rest = max(step - backward - optimizer - wait, 0.0)
    seen = parts.forward_seconds + parts.idle_seconds
    forward = rest * parts.forward_seconds / seen if seen > 0 else rest
    return Parts(
        step_seconds=step,
        forward_seconds=forward,
        backward_seconds=backward,
        optimizer_seconds=optimizer,
        h2d_seconds=0.0,
        d2h_seconds=0.0,
        data_wait_seconds=wait,
        idle_seconds=rest - forward,
    )


def _means(traced: Sequence[TracedStep]) -> Parts:
    names = Parts.__dataclass_fields__
    return Parts(**{name: fmean(getattr(row, name) for row in traced) for name in names})


def _scaled(parts: Parts, scale: float) -> Parts:
    return Parts(**{name: getattr(parts, name) * scale for name in Parts.__dataclass_fields__})


def _exposed_share(traced: Sequence[TracedStep]) -> float:
    """Of the time in which the host waits for data, that in which the device has nothing to do."""
    loader = sum(row.loader_seconds for row in traced)
    return min(sum(row.data_wait_seconds for row in traced) / loader, 1.0) if loader > 0 else 1.0

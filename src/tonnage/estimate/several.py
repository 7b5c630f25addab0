"""An estimate for several GPUs of a kind, each with the batch that one GPU had, from the estimate for one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tonnage.estimate.data_parallel import data_parallel
from tonnage.estimate.estimate import Estimate, Interval, TimeEstimate
from tonnage.estimate.parallel import ParallelOptions, ParallelStep
from tonnage.estimate.parallel_memory import divide
from tonnage.estimate.parallel_trace import StepShape, from_trace
from tonnage.estimate.step import Step, step_of
from tonnage.estimate.step_time import StepTime, time_step
from tonnage.estimate.time_estimate import times_of
from tonnage.estimate.time_model import TimeModel
from tonnage.estimate.topology import Topology, from_catalogue
from tonnage.hardware import Gpu
from tonnage.program.trace import Category, Trace


@dataclass(frozen=True, eq=False)
class SeveralGpus:
    """What training on several GPUs needs to know of a Trace, found once for all GPUs."""

    trace: Trace
    model: TimeModel
    options: ParallelOptions

    @cached_property
    def shape(self) -> StepShape | None:
        """None for inference, where GPUs have nothing to exchange."""
        if not bool((self.trace.block_category == Category.GRADIENTS).any()):
            return None
        return from_trace(self.trace)

    @cached_property
    def _step(self) -> Step | None:
        if self.shape is None:
            return None
        first = self.shape.first_call
        return step_of(self.trace, np.arange(first, first + len(self.shape.phases), dtype=np.int32))

    def estimate(
        self, single: Estimate, gpu: Gpu, count: int, memory: np.ndarray[tuple[int, int], np.dtype[np.int64]]
    ) -> Estimate:
        """`memory` is what one GPU holds of each category over time (`Requests.bytes_by_category`)."""
        topology = from_catalogue(gpu, count)
        step = self._parallel(gpu, topology)
        changed = self._memory(single, topology, memory)
        time = None if single.time is None else _several(single.time, count, step)
        return replace(changed, gpu_count=count, time=time)

    def _parallel(self, gpu: Gpu, topology: Topology) -> ParallelStep | None:
        if self.shape is None or self._step is None:
            return None
        times: StepTime = time_step(self._step, gpu, self.model)
        ends = self._step.of_all_calls(np.maximum.accumulate(np.maximum(times.timeline.ended, 0.0)))
        return data_parallel(self.shape.timeline(ends.tolist()), topology, self.options)

    def _memory(
        self, single: Estimate, topology: Topology, memory: np.ndarray[tuple[int, int], np.dtype[np.int64]]
    ) -> Estimate:
        if self.shape is None or len(memory) == 0:
            return single
        categories = divide(self.shape.units(), topology, self.options).peak(memory)
        context = categories[Category.CONTEXT.label] + single.categories[Category.CONTEXT.label]
        allocated = sum(categories.values()) - categories[Category.CONTEXT.label]
        before = max(single.peak_allocated_bytes.value, 1)
        # Blocks change size, not number: what the allocator keeps beyond what is in use stays in proportion.
        reserved = _scaled(single.peak_reserved_bytes, allocated / before)
        more = context - single.categories[Category.CONTEXT.label] + reserved.value - single.peak_reserved_bytes.value
        device = _shifted(single.device_bytes, more)
        return replace(
            single,
            peak_allocated_bytes=_scaled(single.peak_allocated_bytes, allocated / before),
            peak_reserved_bytes=reserved,
            device_bytes=device,
            fits=device.value <= single.usable_bytes,
            categories=_in_order(categories | {Category.CONTEXT.label: context}),
            out_of_memory=None if device.value <= single.usable_bytes else single.out_of_memory,
            max_batch=None,
        )


def _in_order(categories: Mapping[str, int]) -> dict[str, int]:
    return {category.label: categories[category.label] for category in Category}


def _scaled(interval: Interval, factor: float) -> Interval:
    return Interval(*(round(value * factor) for value in (interval.value, interval.low, interval.high)))


def _shifted(interval: Interval, more: float) -> Interval:
    return Interval(*(max(round(value + more), 0) for value in (interval.value, interval.low, interval.high)))


def _several(alone: TimeEstimate, count: int, step: ParallelStep | None) -> TimeEstimate:
    """The step of one GPU, and what the others add to it; all GPUs draw power, each does its part of an epoch."""
    before = alone.step_seconds.value
    time = _with_others(alone, step, before / step.single_seconds) if step and step.single_seconds else alone
    slower = (before + _parts(time) - _parts(alone)) / before if before else 1.0
    waits_for_network = step is not None and step.exposed_seconds > 0.5 * step.step_seconds
    return replace(
        time,
        bound_by="network" if waits_for_network else time.bound_by,
        step_seconds=times_of(time.step_seconds, slower),
        power_watts=times_of(time.power_watts, count * (1 + (1 / slower - 1) * 0.5)),
        energy_joules_step=times_of(time.energy_joules_step, count * (1 + (slower - 1) * 0.5)),
        utilisation=time.utilisation / slower,
        bandwidth_share=time.bandwidth_share / slower,
        epoch_seconds=times_of(time.epoch_seconds, slower / count) if time.epoch_seconds else None,
        cost_usd_hour=times_of(time.cost_usd_hour, count) if time.cost_usd_hour else None,
    )


def _with_others(alone: TimeEstimate, step: ParallelStep, scale: float) -> TimeEstimate:
    """Phases last longer while collectives slow them down, and of a sharded optimizer each GPU has its part. `scale` is
    needed because the step that is shared out may be another of the Trace than those that one GPU was timed with."""
    slowed = {name: seconds * scale for name, seconds in step.slowed_seconds.items()}
    saved = min(step.saved_seconds * scale, alone.optimizer_seconds.value)
    return replace(
        alone,
        forward_seconds=_longer(alone.forward_seconds, slowed["forward"]),
        backward_seconds=_longer(alone.backward_seconds, slowed["backward"]),
        optimizer_seconds=_longer(alone.optimizer_seconds, slowed["optimizer"] - saved),
        network_seconds=step.waiting_seconds * scale,
    )


def _parts(time: TimeEstimate) -> float:
    """What another GPU can change of a step."""
    phases = (time.forward_seconds, time.backward_seconds, time.optimizer_seconds)
    return sum(phase.value for phase in phases) + time.network_seconds


def _longer(interval: Interval, more: float) -> Interval:
    """Bounds stay in proportion; those of a phase that takes no time alone are not known."""
    if not interval.value:
        return Interval(more, more, more)
    return times_of(interval, (interval.value + more) / interval.value)

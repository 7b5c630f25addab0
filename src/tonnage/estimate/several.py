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


def _several(time: TimeEstimate, count: int, step: ParallelStep | None) -> TimeEstimate:
    """The step of one GPU, and what waiting for the others adds; all GPUs draw power, each does its part of an epoch."""
    slower = step.step_seconds / step.single_seconds if step and step.single_seconds else 1.0
    longer = times_of(time.step_seconds, slower)
    waits_for_network = step is not None and step.exposed_seconds > 0.5 * step.step_seconds
    return replace(
        time,
        bound_by="network" if waits_for_network else time.bound_by,
        step_seconds=longer,
        power_watts=times_of(time.power_watts, count * (1 + (1 / slower - 1) * 0.5)),
        energy_joules_step=times_of(time.energy_joules_step, count * (1 + (slower - 1) * 0.5)),
        utilisation=time.utilisation / slower,
        network_seconds=step.exposed_seconds if step else 0.0,
        epoch_seconds=times_of(time.epoch_seconds, slower / count) if time.epoch_seconds else None,
        cost_usd_hour=times_of(time.cost_usd_hour, count) if time.cost_usd_hour else None,
    )

"""Runs one workload on the device of this machine and says what it took."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from tonnage.benchmark.messages import Method
from tonnage.benchmark.observe import Observation, Observer, observe, observe_host, spread
from tonnage.benchmark.observed_steps import OBSERVED_STEPS
from tonnage.benchmark.power import PowerMeter, PowerReading
from tonnage.benchmark.results import Measured, blank
from tonnage.benchmark.timing import PARTS, StepTimes, time_steps
from tonnage.benchmark.workloads.point import Point
from tonnage.benchmark.workloads.registry import find_family
from tonnage.benchmark.workloads.step import InferenceStep, Step, TrainingStep, prepare_step
from tonnage.store.rows import Measurement, Spread

# What the backward part does before autograd's engine runs (scaling the loss) counts as forward, as in a Trace.
_PHASES = {"copy": "copy", "forward": "forward", "backward": "forward", "optimize": "optimizer", "read": "copy"}


def measure_point(
    point: Point,
    *,
    device: str,
    campaign: str = "",
    method: Method | None = None,
    meter: PowerMeter | None = None,
    others_bytes: int = 0,
) -> Measured:
    """Time, memory, power and kernels of one point. `others_bytes` is what other processes hold of the GPU."""
    method = method or Method()
    _start_afresh(device)
    step = prepare_step(point, device)
    (first,) = time_steps(step, 1, device)
    runs = [run for _ in range(method.repetitions) for run in time_steps(step, method.steps + 1, device)[1:]]
    measurement = replace(
        blank(point, campaign),
        steps=method.steps,
        repetitions=method.repetitions,
        step_seconds=spread([run.step for run in runs]),
        host_seconds=spread([run.host for run in runs]),
        first_step_seconds=first.step,
        **_phase_seconds(point, runs),
        **_memory(device, others_bytes),
        **_copied(step),
        parameter_count=find_family(point.family).parameter_count(point.structure),
        storage_bytes=_checkpoint_bytes(step),
    )
    reading = meter.measure(step, method.power_seconds) if meter else None
    if reading is not None:
        measurement = _with_power(measurement, reading)
    return _with_kernels(measurement, step, device) if method.kernels else Measured(measurement)


def _start_afresh(device: str) -> None:
    """Nothing of an earlier point shall be in this one's memory or in its numbers."""
    torch.manual_seed(0)
    gc.collect()
    if device == "cuda":
        torch._C._cuda_clearCublasWorkspaces()  # they stay from the first product on, and would count here
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def _phase_seconds(point: Point, runs: Sequence[StepTimes]) -> dict[str, Any]:
    columns = dict(zip(PARTS, zip(*(run.parts for run in runs), strict=True), strict=True))
    names = {"copy": "h2d_seconds", "forward": "forward_seconds", "read": "d2h_seconds"}
    if point.mode == "training":
        names |= {"backward": "backward_seconds", "optimize": "optimizer_seconds"}
    return {column: spread(columns[part]) for part, column in names.items()}


def _memory(device: str, others_bytes: int) -> dict[str, Any]:
    if device != "cuda":
        return {}
    free, total = torch.cuda.mem_get_info()
    return {
        "allocated_bytes": torch.cuda.max_memory_allocated(),
        "reserved_bytes": torch.cuda.max_memory_reserved(),
        "device_bytes": max(total - free - others_bytes, 0),
    }


def _copied(step: Step) -> dict[str, Any]:
    if isinstance(step, TrainingStep):
        read = step.loss
    else:
        assert isinstance(step, InferenceStep)
        read = step.outputs
    return {"h2d_bytes": sum(tensor.nbytes for tensor in step.host_batch), "d2h_bytes": read.nbytes}


class _Counter:
    """A file that only counts what is written to it."""

    def __init__(self) -> None:
        self.bytes = 0

    def write(self, data: bytes) -> int:
        self.bytes += len(data)
        return len(data)

    def flush(self) -> None:
        pass


def _checkpoint_bytes(step: Step) -> int:
    counter = _Counter()
    torch.save(step.module.state_dict(), counter)  # type: ignore[arg-type]  # all it needs is `write`
    return counter.bytes


def _with_power(measurement: Measurement, reading: PowerReading) -> Measurement:
    return replace(
        measurement,
        power_watts=reading.watts,
        energy_joules_step=reading.energy_joules_step,
        utilisation=reading.utilisation,
        sm_clock_mhz=reading.sm_clock_mhz,
        temperature_celsius=reading.temperature_celsius,
    )


def _with_kernels(measurement: Measurement, step: Step, device: str) -> Measured:
    hosts = observe_host(lambda observer: _observed_steps(step, observer), device)
    seen = observe(lambda observer: _observed_steps(step, observer), device)
    if device == "cuda" and measurement.step_seconds is not None:
        measurement = replace(measurement, utilisation=_utilisation(seen, measurement.step_seconds))
    return Measured(measurement, seen.kernels(), hosts)


def _observed_steps(step: Step, observer: Observer) -> None:
    for _ in range(OBSERVED_STEPS):
        for part in PARTS:
            observer.phase = _PHASES[part]
            getattr(step, part)()


def _utilisation(seen: Observation, step_seconds: Spread) -> float:
    """From the kernels themselves: the driver's own figure is a mean over up to a second, whatever ran in it."""
    return min(seen.kernel_seconds / OBSERVED_STEPS / step_seconds.mean, 1.0)

"""Runs one workload or one layer on the device of this machine and says what it took."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import torch

from tonnage.benchmark.layers import Layer, build
from tonnage.benchmark.observe import PREPARING, Observation, Observer, observe, spread
from tonnage.benchmark.power import PowerMeter
from tonnage.benchmark.workloads.point import Point
from tonnage.benchmark.workloads.registry import find_family
from tonnage.benchmark.workloads.step import Step, prepare_step
from tonnage.store.rows import HostRow, KernelRow, Measurement, Status

PARTS = ("copy", "forward", "backward", "optimize", "read")
OBSERVED_STEPS = 3
# More than the last-level cache of any GPU in the catalogue: writing it leaves nothing else there.
FLUSH_BYTES = 256 << 20


class Measured(NamedTuple):
    """A measurement with its rows for each kernel and operator."""

    measurement: Measurement
    kernels: Sequence[KernelRow] = ()
    hosts: Sequence[HostRow] = ()


class _StepTimes(NamedTuple):
    step: float
    parts: tuple[float, ...]
    host: float


class Clock:
    """Marks moments on the device's own time-line, without waiting for them."""

    def __init__(self, device: str) -> None:
        self._is_cuda = device == "cuda"

    def mark(self) -> Any:
        if not self._is_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def wait(self) -> None:
        if self._is_cuda:
            torch.cuda.synchronize()

    def between(self, first: Any, second: Any) -> float:
        return first.elapsed_time(second) / 1000 if self._is_cuda else second - first


def measure_point(
    point: Point,
    *,
    device: str,
    campaign: str = "",
    steps: int = 20,
    repetitions: int = 3,
    kernels: bool = True,
    meter: PowerMeter | None = None,
    power_seconds: float = 1.0,
) -> Measured:
    """The first steps + 1 steps, several times; the first of each is left out."""
    _forget_peak(device)
    step = prepare_step(point, device)
    clock = Clock(device)
    first = _timed(step, 1, clock)[0].step
    runs = [times for _ in range(repetitions) for times in _timed(step, steps + 1, clock)[1:]]
    reading = meter.measure(step, power_seconds) if meter else None
    measurement = replace(
        _blank(point, campaign),
        steps=steps,
        repetitions=repetitions,
        step_seconds=spread([run.step for run in runs]),
        host_seconds=spread([run.host for run in runs]),
        first_step_seconds=first,
        **_phases(point, runs),
        **_memory(device),
        **_copied(step),
        parameter_count=find_family(point.family).parameter_count(point.structure),
        storage_bytes=_checkpoint_bytes(step),
    )
    if reading is not None:
        measurement = replace(
            measurement,
            power_watts=reading.watts,
            energy_joules_step=reading.energy_joules / max(reading.steps, 1),
            utilisation=reading.utilisation,
            sm_clock_mhz=reading.sm_clock_mhz,
            temperature_celsius=reading.temperature_celsius,
        )
    if not kernels:
        return Measured(measurement)
    seen = observe(lambda observer: _observed_steps(step, observer), device)
    return Measured(measurement, seen.kernels(), seen.hosts())


def failed_point(point: Point, campaign: str, status: Status, message: str) -> Measurement:
    return replace(_blank(point, campaign), status=status, message=message)


def _blank(point: Point, campaign: str) -> Measurement:
    settings = {"optimizer": point.optimizer, "memory_format": point.memory_format}
    return Measurement(
        key=point.key,
        campaign=campaign,
        family=point.family,
        structure=point.structure,
        batch=point.batch,
        input_shape=find_family(point.family).input_shape(point.structure),
        precision=point.precision,
        settings=settings,
        mode=point.mode,
        measured_at=datetime.now(UTC),
    )


def _timed(step: Step, count: int, clock: Clock) -> list[_StepTimes]:
    parts = [getattr(step, name) for name in PARTS]
    marks: list[list[Any]] = []
    hosts: list[float] = []
    clock.wait()
    for _ in range(count):
        started = time.perf_counter()
        marks.append([clock.mark()])
        for part in parts[:-1]:
            part()
            marks[-1].append(clock.mark())
        hosts.append(time.perf_counter() - started)
        parts[-1]()
        marks[-1].append(clock.mark())
    clock.wait()
    return [
        _StepTimes(
            clock.between(row[0], row[-1]),
            tuple(clock.between(a, b) for a, b in zip(row, row[1:], strict=False)),
            host,
        )
        for row, host in zip(marks, hosts, strict=True)
    ]


def _phases(point: Point, runs: Sequence[_StepTimes]) -> dict[str, Any]:
    columns = dict(zip(PARTS, zip(*(run.parts for run in runs), strict=True), strict=True))
    names = {"copy": "h2d_seconds", "forward": "forward_seconds", "read": "d2h_seconds"}
    if point.mode == "training":
        names |= {"backward": "backward_seconds", "optimize": "optimizer_seconds"}
    return {column: spread(columns[part]) for part, column in names.items()}


def _forget_peak(device: str) -> None:
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def _memory(device: str) -> dict[str, int]:
    if device != "cuda":
        return {}
    free, total = torch.cuda.mem_get_info()
    return {
        "allocated_bytes": torch.cuda.max_memory_allocated(),
        "reserved_bytes": torch.cuda.max_memory_reserved(),
        "device_bytes": total - free,
    }


def _copied(step: Step) -> dict[str, int]:
    read = step.outputs if step.__class__.__name__ == "InferenceStep" else step.loss  # type: ignore[attr-defined]
    return {"h2d_bytes": sum(t.nbytes for t in step.host_batch), "d2h_bytes": read.nbytes}


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


def _observed_steps(step: Step, observer: Observer) -> None:
    phases = {"copy": "copy", "forward": "forward", "backward": "forward", "optimize": "optimizer", "read": "copy"}
    for _ in range(OBSERVED_STEPS):
        for name in PARTS:
            observer.phase = phases[name]
            getattr(step, name)()


# -- layers ---------------------------------------------------------------------------------------------------------------


class _Stage:
    """Tells the observer the phase, and empties the caches."""

    def __init__(self, device: str) -> None:
        self.observer: Observer | None = None
        self._junk = torch.zeros(FLUSH_BYTES if device == "cuda" else 1, dtype=torch.int8, device=device)

    def phase(self, name: str) -> None:
        if self.observer is not None:
            self.observer.phase = name

    def forget(self) -> None:
        self._junk.zero_()


def measure_layers(layers: Sequence[Layer], *, device: str, campaign: str = "", runs: int = 3) -> Iterator[Measured]:
    """Each layer by itself, with cold caches but for what has just arrived; one profile for all of them."""
    stage = _Stage(device)
    spans: list[tuple[Layer, range, str]] = []

    def run(observer: Observer) -> None:
        for layer in layers:
            first = len(observer.calls)
            message = _run_layer(layer, device, stage, observer, runs)
            spans.append((layer, range(first, len(observer.calls)), message))

    seen = observe(run, device)
    for layer, calls, message in spans:
        yield _layer_rows(layer, campaign, seen, calls, message, runs)


def _run_layer(layer: Layer, device: str, stage: _Stage, observer: Observer, runs: int) -> str:
    """Empty, or why the layer could not be run."""
    try:
        with _without(observer):
            scene = build(layer, device)
            for _ in range(2):  # libraries load kernels and choose algorithms
                scene(stage)
        stage.observer = observer
        for _ in range(runs):
            scene(stage)
    except torch.OutOfMemoryError as error:
        return f"{Status.OUT_OF_MEMORY}: {error}"
    except (RuntimeError, NotImplementedError, ValueError) as error:
        return f"{Status.FAILED}: {error}"
    finally:
        stage.observer = None
        observer.phase = PREPARING
    return ""


def _without(observer: Observer) -> Any:
    """Leave the observer's mode for a while."""
    return torch.utils._python_dispatch._disable_current_modes()


def _layer_rows(layer: Layer, campaign: str, seen: Observation, calls: range, message: str, runs: int) -> Measured:
    status, _, reason = message.partition(": ")
    measurement = Measurement(
        key=layer.key,
        campaign=campaign,
        family=f"layer:{layer.kind}",
        structure=layer.numbers,
        batch=int(layer.numbers.get("batch", 1)),
        input_shape=(),
        precision=layer.dtype,
        mode="layer",
        status=Status(status or "ok"),
        message=reason[:500],
        measured_at=datetime.now(UTC),
        steps=runs,
        repetitions=1,
    )
    if message or not len(calls):
        return Measured(measurement)
    return Measured(measurement, seen.kernels(calls), seen.hosts(calls))

"""This machine: its size, what is in use of it, and how fast it is just now."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from math import sqrt
from typing import Any

from tonnage.errors import Unreachable
from tonnage.hardware.probe import Nvml, import_nvml, probe

_SIDE = 512  # of the matrices: 1 MiB each, which the caches of most processors hold
_COPY_BYTES = 32 * 2**20  # which they do not
_LEAST_SECONDS = 0.02  # of one observation
_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """One observation of the processors: a matrix product in float32, and a copy in memory."""

    flops_second: float
    copy_bytes_second: float

    @property
    def score(self) -> float:
        """Networks compute and move data: the geometric mean weighs both alike, whatever their units."""
        return sqrt(self.flops_second * self.copy_bytes_second)


def look(nvml: Nvml | None = None) -> dict[str, Any]:
    """Cores, memory and load of the machine and its GPUs, as plain data."""
    import psutil

    memory = psutil.virtual_memory()
    return {
        "cores": psutil.cpu_count(logical=False) or psutil.cpu_count() or 1,
        "memory_bytes": memory.total,
        "available_bytes": memory.available,
        "load": psutil.cpu_percent(interval=_LOOK_SECONDS) / 100,
        "gpus": _gpus(nvml),
    }


def paces(count: int) -> list[Pace]:
    """So many observations, of 20 ms or a little more for each of the two kinds of work."""
    import numpy

    left = numpy.full((_SIDE, _SIDE), 0.5, numpy.float32)
    source = numpy.ones(_COPY_BYTES, numpy.uint8)
    product, target = numpy.empty_like(left), numpy.empty_like(source)
    multiply: Callable[[], object] = partial(numpy.matmul, left, left, out=product)
    copy: Callable[[], object] = partial(numpy.copyto, target, source)
    for work in (multiply, copy):  # threads start and pages are touched
        work()
    return [
        Pace(flops_second=_rate(multiply, 2 * _SIDE**3), copy_bytes_second=_rate(copy, _COPY_BYTES))
        for _ in range(count)
    ]


def _rate(work: Callable[[], object], amount: int) -> float:
    done, began = 0, time.perf_counter()
    while (seconds := time.perf_counter() - began) < _LEAST_SECONDS:
        work()
        done += amount
    return done / seconds


def _gpus(nvml: Nvml | None) -> list[dict[str, Any]]:
    """In the order of the driver; none where there is no driver."""
    try:
        machine = probe(nvml)
    except Unreachable:
        return []
    loads = _gpu_loads(nvml or import_nvml(), len(machine.gpus))
    return [
        {
            "name": gpu.gpu.name if gpu.gpu else gpu.name,
            "is_known": gpu.gpu is not None,
            "memory_bytes": gpu.memory_bytes,
            "available_bytes": gpu.memory_bytes - gpu.used_bytes - (gpu.reserved_bytes or 0),
            "load": load,
        }
        for gpu, load in zip(machine.gpus, loads, strict=True)
    ]


def _gpu_loads(nvml: Nvml, count: int) -> list[float | None]:
    """None for a board that does not tell."""
    nvml.nvmlInit()
    try:
        return [_gpu_load(nvml, index) for index in range(count)]
    finally:
        nvml.nvmlShutdown()


def _gpu_load(nvml: Nvml, index: int) -> float | None:
    try:
        return float(nvml.nvmlDeviceGetUtilizationRates(nvml.nvmlDeviceGetHandleByIndex(index)).gpu) / 100
    except nvml.NVMLError:
        return None


def plain_pace(pace: Pace) -> dict[str, float]:
    return asdict(pace)

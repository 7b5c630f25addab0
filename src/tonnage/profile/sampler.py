"""Looks at a process and at the GPUs from outside while it runs: memory, energy, utilisation."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import psutil

from tonnage.hardware.probe import Nvml, import_nvml

_EVERY_SECONDS = 0.04  # the driver's energy counter moves every 20 to 100 ms
_MEMORY_EVERY = 4  # samples: asking for the memory of many processes takes longer


@dataclass(frozen=True, slots=True)
class GpuSample:
    """What the driver says at one moment; None where it does not."""

    at: float
    energy_millijoules: int | None
    used_bytes: int | None


@dataclass(slots=True)
class Samples:
    """Everything that was seen; moments are those of `time.monotonic`, which all processes share."""

    peak_host_bytes: int = 0
    gpus: dict[str, list[GpuSample]] = field(default_factory=dict)
    driver: str = ""

    def watts(self, uuid: str, begin: float, end: float) -> float | None:
        """Mean power between two updates of the energy counter."""
        seen = [sample for sample in self.gpus.get(uuid, ()) if sample.energy_millijoules is not None]
        changes = [
            (b.at, b.energy_millijoules or 0)
            for a, b in itertools.pairwise(seen)
            if begin <= b.at <= end and a.energy_millijoules != b.energy_millijoules
        ]
        if len(changes) < 2:
            return None
        (first, low), (last, high) = changes[0], changes[-1]
        return (high - low) / 1000 / (last - first)

    def gpu_bytes(self, uuid: str) -> int | None:
        """What the device lost to the program: its peak over what was used before."""
        used = [sample.used_bytes for sample in self.gpus.get(uuid, ()) if sample.used_bytes is not None]
        return max(used) - used[0] if len(used) > 1 else None


class Sampler:
    """Samples until it is closed; a thread, since nobody else has time for it."""

    def __init__(self, pid: int, nvml: Nvml | None = None) -> None:
        self.samples = Samples()
        self._process = psutil.Process(pid)
        self._nvml = nvml
        self._handles: dict[str, Any] = {}
        self._stop = threading.Event()
        self._open_driver()
        self._look(0)  # before the program takes anything of a GPU
        self._thread = threading.Thread(target=self._run, name="tonnage-sampler", daemon=True)
        self._thread.start()

    def close(self) -> Samples:
        self._stop.set()
        self._thread.join()
        if self._handles and self._nvml is not None:
            self._nvml.nvmlShutdown()
            self._handles = {}
        return self.samples

    def _open_driver(self) -> None:
        """Without a driver there is nothing to ask; that is no error."""
        nvml = self._nvml = self._nvml or import_nvml()
        try:
            nvml.nvmlInit()
            self.samples.driver = nvml.nvmlSystemGetDriverVersion()
            for index in range(nvml.nvmlDeviceGetCount()):
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                self._handles[nvml.nvmlDeviceGetUUID(handle)] = handle
        except nvml.NVMLError:
            self._handles = {}

    def _run(self) -> None:
        for number in itertools.count(1):
            if self._stop.wait(_EVERY_SECONDS):
                return
            self._look(number)

    def _look(self, number: int) -> None:
        for uuid, handle in self._handles.items():
            self.samples.gpus.setdefault(uuid, []).append(self._ask(handle))
        if number % _MEMORY_EVERY == 0:
            self.samples.peak_host_bytes = max(self.samples.peak_host_bytes, tree_bytes(self._process))

    def _ask(self, handle: Any) -> GpuSample:
        nvml = self._nvml
        assert nvml is not None
        energy: int | None = None
        used: int | None = None
        with contextlib.suppress(nvml.NVMLError):
            energy = nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        with contextlib.suppress(nvml.NVMLError):
            used = nvml.nvmlDeviceGetMemoryInfo(handle).used
        return GpuSample(time.monotonic(), energy, used)


def tree_bytes(process: psutil.Process) -> int:
    """Resident memory of a process and all below it; pages that they share count once where the system tells."""
    try:
        below = process.children(recursive=True)
        return sum(_own_bytes(member, shared=bool(below)) for member in (process, *below))
    except psutil.Error:
        return 0


def _own_bytes(process: psutil.Process, *, shared: bool) -> int:
    if shared:
        with contextlib.suppress(AttributeError, psutil.Error):
            return int(process.memory_full_info().pss)
    with contextlib.suppress(psutil.Error):
        return int(process.memory_info().rss)
    return 0

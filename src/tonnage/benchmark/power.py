"""Power, energy, clock and utilisation of a GPU, asked from its driver while something runs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tonnage.hardware.probe import Nvml

POLL_SECONDS = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerReading:
    """Means over the time between two updates of the driver's energy counter."""

    seconds: float
    steps: int
    energy_joules: float
    sm_clock_mhz: float
    utilisation: float
    temperature_celsius: float

    @property
    def watts(self) -> float:
        return self.energy_joules / self.seconds


class PowerMeter:
    """Reads the energy counter of one GPU. The driver updates it every 20 to 100 ms, so readings begin and end there."""

    def __init__(self, nvml: Nvml, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle

    def measure(self, step: Callable[[], None], seconds: float) -> PowerReading | None:
        """Repeat a step that waits for the GPU; None where the driver has no energy counter."""
        try:
            return self._measure(step, seconds)
        except self._nvml.NVMLError:
            return None

    def _measure(self, step: Callable[[], None], seconds: float) -> PowerReading | None:
        updates: list[tuple[float, int, int]] = []
        samples: list[tuple[int, int, int]] = []
        last, polled, steps = self._energy_millijoules(), 0.0, 0
        started = time.perf_counter()
        while True:
            step()
            steps += 1
            now = time.perf_counter()
            if now - polled < POLL_SECONDS:
                continue
            polled = now
            energy = self._energy_millijoules()
            if energy != last:
                last = energy
                updates.append((now, steps, energy))
                samples.append(self._sample())
            if now - started > seconds and (len(updates) > 2 or now - started > 3 * seconds):
                break
        return _between(updates, samples)

    def _energy_millijoules(self) -> int:
        return int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle))

    def _sample(self) -> tuple[int, int, int]:
        sm_clock, gpu_core = 1, 0  # NVML_CLOCK_SM, NVML_TEMPERATURE_GPU
        return (
            self._nvml.nvmlDeviceGetClockInfo(self._handle, sm_clock),
            self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu,
            self._nvml.nvmlDeviceGetTemperature(self._handle, gpu_core),
        )


def _between(updates: list[tuple[float, int, int]], samples: list[tuple[int, int, int]]) -> PowerReading | None:
    if len(updates) < 2:
        return None
    # The first quarter is left out: clocks and power take a moment to settle.
    first, last = updates[len(updates) // 4], updates[-1]
    clocks, busy, warmth = zip(*samples[len(updates) // 4 :], strict=True)
    return PowerReading(
        seconds=last[0] - first[0],
        steps=last[1] - first[1],
        energy_joules=(last[2] - first[2]) / 1000,
        sm_clock_mhz=statistics.fmean(clocks),
        utilisation=statistics.fmean(busy) / 100,
        temperature_celsius=statistics.fmean(warmth),
    )

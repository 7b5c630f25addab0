"""Power, energy, clock, temperature and utilisation of a GPU, asked from its driver while something runs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tonnage.hardware.probe import NVML_CLOCK_SM, NVML_TEMPERATURE_GPU, Nvml

POLL_SECONDS = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerReading:
    """Means over the time between two updates of the driver's energy counter; None for what the board does not tell."""

    seconds: float
    steps: int
    energy_joules: float
    sm_clock_mhz: float | None
    utilisation: float | None
    temperature_celsius: float | None

    @property
    def watts(self) -> float:
        return self.energy_joules / self.seconds

    @property
    def energy_joules_step(self) -> float:
        return self.energy_joules / self.steps


@dataclass(frozen=True, slots=True)
class _Update:
    """The moment at which a new value of the energy counter was seen."""

    at: float
    steps: int
    energy_millijoules: int
    sm_clock_mhz: float | None
    busy_percent: float | None
    temperature_celsius: float | None


class PowerMeter:
    """Reads the energy counter of one GPU. The driver updates it every 20 to 100 ms, so readings begin and end there."""

    def __init__(self, nvml: Nvml, handle: Any, clock: Callable[[], float] = time.perf_counter) -> None:
        self._nvml, self._handle, self._clock = nvml, handle, clock

    def measure(self, step: Callable[[], None], seconds: float) -> PowerReading | None:
        """Repeat a step that waits for the GPU; None where the driver has no energy counter (before Volta)."""
        try:
            return _between(self._updates(step, seconds))
        except self._nvml.NVMLError:
            return None

    def _updates(self, step: Callable[[], None], seconds: float) -> list[_Update]:
        """Every update of the counter; three times as long as asked for, if that is what three updates take."""
        updates: list[_Update] = []
        last, steps = self._energy_millijoules(), 0
        started = polled = self._clock()
        while not self._is_over(updates, polled - started, seconds):
            step()
            steps += 1
            now = self._clock()
            if now - polled < POLL_SECONDS:
                continue
            polled, energy = now, self._energy_millijoules()
            if energy != last:
                last = energy
                updates.append(self._update(now, steps, energy))
        return updates

    @staticmethod
    def _is_over(updates: Sequence[_Update], elapsed: float, seconds: float) -> bool:
        return elapsed > seconds and (len(updates) > 2 or elapsed > 3 * seconds)

    def _energy_millijoules(self) -> int:
        return self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)

    def _update(self, now: float, steps: int, energy: int) -> _Update:
        clock = self._optional(self._nvml.nvmlDeviceGetClockInfo, NVML_CLOCK_SM)
        rates = self._optional(self._nvml.nvmlDeviceGetUtilizationRates)
        warmth = self._optional(self._nvml.nvmlDeviceGetTemperature, NVML_TEMPERATURE_GPU)
        return _Update(now, steps, energy, clock, None if rates is None else rates.gpu, warmth)

    def _optional(self, ask: Callable[..., Any], *arguments: int) -> Any:
        """Many boards and virtual GPUs answer some questions with "not supported"."""
        try:
            return ask(self._handle, *arguments)
        except self._nvml.NVMLError:
            return None


def _between(updates: Sequence[_Update]) -> PowerReading | None:
    if len(updates) < 2:
        return None
    # The first quarter is left out: clocks and power take a moment to settle.
    settled = updates[len(updates) // 4 :] if len(updates) > 2 else updates
    first, last = settled[0], settled[-1]
    busy = _mean([update.busy_percent for update in settled])
    return PowerReading(
        seconds=last.at - first.at,
        steps=last.steps - first.steps,
        energy_joules=(last.energy_millijoules - first.energy_millijoules) / 1000,
        sm_clock_mhz=_mean([update.sm_clock_mhz for update in settled]),
        utilisation=None if busy is None else busy / 100,
        temperature_celsius=_mean([update.temperature_celsius for update in settled]),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None

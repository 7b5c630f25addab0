"""Power from an energy counter that moves in steps, with a driver and a clock that are not there."""

from itertools import count

import pytest

from tonnage.benchmark.power import PowerMeter, PowerReading
from tonnage.hardware.fake_nvml import FakeDevice, FakeNvml

STEP_SECONDS = 0.004


class Clock:
    """Time that passes only when a step is made."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def step(self) -> None:
        self.now += STEP_SECONDS


def measure(device: FakeDevice, seconds: float = 0.5, update_seconds: float = 0.05) -> PowerReading | None:
    clock = Clock()
    nvml = FakeNvml([device], clock=clock, energy_update_seconds=update_seconds)
    return PowerMeter(nvml, device, clock).measure(clock.step, seconds)


def test_energy_over_time_is_power() -> None:
    reading = measure(FakeDevice(power_watts=400.0))
    assert reading is not None
    assert reading.watts == pytest.approx(400, rel=0.05)
    assert reading.energy_joules_step == pytest.approx(400 * STEP_SECONDS, rel=0.05)
    assert reading.seconds <= 0.5


def test_clock_utilisation_and_temperature_are_means() -> None:
    reading = measure(FakeDevice(sm_clock_mhz=1500, utilisation_percent=80, temperature_celsius=61))
    assert reading is not None
    assert (reading.sm_clock_mhz, reading.utilisation, reading.temperature_celsius) == (1500, 0.8, 61)


def test_a_slow_counter_is_waited_for() -> None:
    reading = measure(FakeDevice(power_watts=300.0), seconds=0.2, update_seconds=0.15)
    assert reading is not None
    assert reading.watts == pytest.approx(300, rel=0.1)


def test_a_counter_that_hardly_moves_gives_nothing() -> None:
    assert measure(FakeDevice(), seconds=0.1, update_seconds=1.0) is None


def test_a_board_without_the_counter_gives_nothing() -> None:
    assert measure(FakeDevice(unsupported=frozenset({"power_watts"}))) is None


def test_what_else_a_board_does_not_tell_is_none() -> None:
    silent = frozenset({"sm_clock_mhz", "utilisation_percent", "temperature_celsius"})
    reading = measure(FakeDevice(unsupported=silent))
    assert reading is not None
    assert (reading.sm_clock_mhz, reading.utilisation, reading.temperature_celsius) == (None, None, None)
    assert reading.watts > 0


def test_steps_longer_than_the_counter_are_measured_too() -> None:
    clock, made = Clock(), count()

    def step() -> None:
        next(made)
        clock.now += 0.4

    device = FakeDevice(power_watts=200.0)
    reading = PowerMeter(FakeNvml([device], clock=clock), device, clock).measure(step, 0.5)
    assert reading is not None
    assert reading.watts == pytest.approx(200, rel=0.15)
    assert next(made) < 6

"""Prices of seconds, operations and bytes are found again from steps that were made with them."""

from dataclasses import replace

import numpy as np
import pytest
from observed import H200, TRUTH, all_measured

from tonnage.benchmark.fit_energy import fit_energy
from tonnage.benchmark.observed_steps import observed_step
from tonnage.benchmark.step_samples import StepSample
from tonnage.errors import UsageError
from tonnage.estimate.energy import EnergyModel
from tonnage.estimate.step_time import time_step

REAL = EnergyModel(
    idle_share=0.2, busy_share=0.1, picojoules_operation=(8.0, 4.0, 1.0, 1.0, 16.0), picojoules_byte=100.0
)


def samples(count: int = 40, noise: float = 0.0) -> list[StepSample]:
    generator, found = np.random.default_rng(1), []
    for measurement, _, hosts in all_measured(count):
        step = observed_step(measurement, hosts)
        times = time_step(step, H200, TRUTH)
        work = float(step.by_operator(REAL.work_joules(step.works, H200))[step.operator].sum())
        joules = REAL.step_joules(H200, times.step_seconds, times.busy_seconds, work)
        found.append(
            StepSample(
                name=measurement.key, family="mlp", gpu=H200, step=step, step_seconds=times.step_seconds,
                busy_seconds=times.busy_seconds, energy_joules=joules * float(np.exp(noise * generator.normal())),
            )
        )  # fmt: skip
    return found


def test_known_prices_are_found_again() -> None:
    found = fit_energy(samples(), EnergyModel())
    assert found.idle_share == pytest.approx(REAL.idle_share, rel=0.02)
    assert found.busy_share == pytest.approx(REAL.busy_share, rel=0.05)
    assert found.picojoules_operation[0] == pytest.approx(REAL.picojoules_operation[0], rel=0.02)


def test_a_few_wrong_counters_do_not_matter() -> None:
    right = samples(noise=0.02)
    wrong = [replace(s, energy_joules=5 * (s.energy_joules or 0)) if i % 13 == 0 else s for i, s in enumerate(right)]
    assert fit_energy(wrong, EnergyModel()).idle_share == pytest.approx(REAL.idle_share, rel=0.15)


def test_arithmetic_that_was_not_measured_keeps_its_price() -> None:
    assert fit_energy(samples(), EnergyModel()).picojoules_operation[1:] == EnergyModel().picojoules_operation[1:]


def test_no_price_is_negative() -> None:
    found = fit_energy(samples(noise=0.3), EnergyModel())
    assert min(found.idle_share, found.busy_share, found.picojoules_byte, *found.picojoules_operation) >= 0


def test_steps_without_measured_energy_do_not_count() -> None:
    without = [replace(sample, energy_joules=None) for sample in samples(30)]
    with pytest.raises(UsageError, match="5 steps with measured energy are too few"):
        fit_energy([*without, *samples(5)], EnergyModel())

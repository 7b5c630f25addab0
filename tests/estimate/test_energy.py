"""Energy and power of a step, and what the power cap does to its time."""

from dataclasses import replace

import pytest
from steps import product, relu, step_with

from tonnage.estimate.energy import EnergyModel, node_factors
from tonnage.estimate.step import Step
from tonnage.estimate.step_time import time_step
from tonnage.estimate.time_model import TimeModel
from tonnage.hardware import find_gpu
from tonnage.program.trace import Phase

H200, L4 = find_gpu("H200"), find_gpu("L4")
MODEL = EnergyModel()


def large() -> Step:
    return step_with(*[(product(8192), Phase.FORWARD)] * 5)


def test_an_idle_gpu_draws_its_share_of_the_boards_power() -> None:
    assert MODEL.step_joules(H200, 2.0, 0.0, 0.0) == pytest.approx(2.0 * MODEL.idle_share * H200.tdp_watts)


def test_a_busy_gpu_draws_more_and_work_comes_on_top() -> None:
    idle, busy, working = (MODEL.step_joules(H200, 1.0, *rest) for rest in ((0.0, 0.0), (1.0, 0.0), (1.0, 50.0)))
    assert idle < busy < working == busy + 50.0


def test_a_step_that_would_exceed_the_boards_power_draws_the_cap() -> None:
    weak = replace(H200, tdp_watts=200)
    capped = time_step(large(), weak, TimeModel())
    assert capped.power_watts == pytest.approx(200, rel=0.02)


def test_a_step_that_would_exceed_the_boards_power_takes_longer() -> None:
    free, capped = (time_step(large(), replace(H200, tdp_watts=watts), TimeModel()) for watts in (10_000, 200))
    assert capped.step_seconds > 1.2 * free.step_seconds
    assert capped.energy_joules < free.energy_joules * capped.step_seconds / free.step_seconds


def test_a_board_that_may_draw_enough_is_not_slowed_down() -> None:
    assert MODEL.capped_share(H200, busy_seconds=1.0, work_joules=1.0) == 1.0
    assert MODEL.capped_share(H200, busy_seconds=0.0, work_joules=0.0) == 1.0


def test_half_precision_needs_less_energy() -> None:
    single, half = (
        float(MODEL.work_joules(step_with((product(4096, dtype), Phase.FORWARD)).works, H200).sum())
        for dtype in ("float32", "bfloat16")
    )
    assert half < single / 2


def test_older_chips_need_more_for_an_operation() -> None:
    assert node_factors(find_gpu("K80"))[0] > node_factors(find_gpu("V100 SXM2 16GB"))[0] > node_factors(H200)[0]


def test_every_byte_has_its_price() -> None:
    small, twice = (
        float(MODEL.work_joules(step_with((relu(side), Phase.FORWARD)).works, L4).sum()) for side in (1024, 2048)
    )
    assert twice == pytest.approx(4 * small, rel=1e-3)

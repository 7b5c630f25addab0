"""How much memory tasks need together, with the probability that is wanted."""

from __future__ import annotations

import numpy as np
import pytest

from tonnage.allocate.problem import Device, Profile
from tonnage.allocate.sharing import memory_holds, memory_needed

GIB = 1 << 30


def profile(memory_gib: float, deviation_gib: float = 0.0) -> Profile:
    return Profile(
        step_seconds=1.0, memory_bytes=int(memory_gib * GIB), memory_deviation_bytes=deviation_gib * GIB
    )  # fmt: skip


def test_memory_that_is_known_is_just_added() -> None:
    assert memory_needed([profile(3), profile(5)], 0.01) == 8 * GIB


def test_equal_tasks_need_as_often_as_much_as_one_of_them() -> None:
    one = profile(4, 0.25)
    assert memory_needed([one] * 3, 0.01) == pytest.approx(3 * memory_needed([one], 0.01))


def test_less_risk_needs_more_memory() -> None:
    needed = [memory_needed([profile(4, 0.25), profile(2, 0.5)], risk) for risk in (0.4, 0.1, 0.05, 0.01, 0.001)]
    assert needed == sorted(needed)
    assert needed[0] < needed[-1]


@pytest.mark.parametrize("risk", [0.01, 0.05, 0.1])
@pytest.mark.parametrize("correlation", [0.0, 0.5, 1.0])
def test_memory_is_exceeded_no_more_often_than_the_risk(risk: float, correlation: float) -> None:
    tasks = [profile(4, 0.25), profile(2, 0.5), profile(8, 0.25)]
    chance, runs = np.random.default_rng(7), 200_000
    alike, own = chance.normal(size=(runs, 1)), chance.normal(size=(runs, len(tasks)))
    errors = np.sqrt(correlation) * alike + np.sqrt(1 - correlation) * own
    needed = np.array([each.memory_bytes for each in tasks]) + errors * [each.memory_deviation_bytes for each in tasks]
    exceeded = float((needed.sum(axis=1) > memory_needed(tasks, risk)).mean())
    assert exceeded <= risk + 4 * np.sqrt(risk / runs)


def test_a_gpu_holds_what_fits_to_the_last_byte() -> None:
    tasks = [profile(10), profile(6)]
    assert memory_holds(Device(place="n/gpu0", gpu="T4", memory_bytes=16 * GIB), tasks, 0.01)
    assert not memory_holds(Device(place="n/gpu0", gpu="T4", memory_bytes=16 * GIB - 1), tasks, 0.01)

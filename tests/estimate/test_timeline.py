"""The two time-lines: the host launches, the GPU runs, each may wait for the other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.estimate.timeline import LAUNCH_SECONDS, simulate, simulate_each

DURATIONS = st.lists(st.tuples(st.floats(0, 1e-2), st.floats(0, 1e-2), st.booleans()), min_size=1, max_size=40)


def run(host: list[float], device: list[float], waits: list[bool] | None = None) -> float:
    return simulate(np.array(host), np.array(device), np.array(waits or [False] * len(host))).step_seconds


def test_a_slow_gpu_bounds_the_step_and_the_host_runs_ahead() -> None:
    assert run([1e-5] * 10, [1e-3] * 10) == pytest.approx(1e-2)


def test_a_slow_host_bounds_the_step() -> None:
    assert run([1e-3] * 10, [1e-5] * 10) == pytest.approx(1e-2, rel=1e-2)


def test_a_host_that_waits_for_the_last_call_pays_for_both() -> None:
    step = run([1e-3, 1e-3], [0.0, 5e-3], [False, True])
    assert step == pytest.approx(1e-3 + 1e-3 + 5e-3 + LAUNCH_SECONDS)


def test_a_step_of_nothing_takes_no_time() -> None:
    assert run([], []) == 0.0


@settings(max_examples=200, deadline=None)
@given(DURATIONS)
def test_a_step_is_never_shorter_than_either_side_nor_longer_than_both(calls: list[tuple[float, float, bool]]) -> None:
    host, device, waits = (list(column) for column in zip(*calls, strict=True))
    step = run(host, device, waits)
    assert step >= max(sum(host), sum(device)) - 1e-9
    assert step <= sum(host) + sum(device) + (sum(waits) + 1) * LAUNCH_SECONDS + 1e-9


@settings(max_examples=200, deadline=None)
@given(DURATIONS)
def test_kernels_run_one_after_the_other_and_never_before_their_launch(calls: list[tuple[float, float, bool]]) -> None:
    host, device, waits = (np.array(column) for column in zip(*calls, strict=True))
    timeline = simulate(host, device, waits.astype(bool))
    assert (timeline.started >= timeline.launched - 1e-12).all()
    assert (timeline.started[1:] >= timeline.ended[:-1] - 1e-12).all()
    assert np.allclose(timeline.ended - timeline.started, device)


@settings(max_examples=100, deadline=None)
@given(DURATIONS)
def test_gpus_that_are_simulated_together_do_not_see_each_other(calls: list[tuple[float, float, bool]]) -> None:
    host, device, waits = (np.array(column) for column in zip(*calls, strict=True))
    both = simulate_each(host, np.stack([device, 3 * device]), waits.astype(bool))
    alone = [simulate(host, seconds, waits.astype(bool)) for seconds in (device, 3 * device)]
    assert [timeline.step_seconds for timeline in both] == [timeline.step_seconds for timeline in alone]
    assert all((one.ended == other.ended).all() for one, other in zip(both, alone, strict=True))

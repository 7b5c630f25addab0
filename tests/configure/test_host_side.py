"""Copies and data loading on another host."""

import pytest
from placing import indicators, waiting

from tonnage.configure import host_side

PCIE4 = 31.5e9  # the RTX 3090's own link


def test_copies_over_the_same_link_take_as_long_as_before() -> None:
    assert host_side.h2d_seconds(indicators(), PCIE4, pinned=False) == pytest.approx(0.005, rel=0.01)


def test_pinned_memory_is_copied_sooner() -> None:
    assert host_side.h2d_seconds(indicators(), PCIE4, pinned=True) < 0.5 * 0.005


def test_copies_that_kernels_hide_take_no_time() -> None:
    assert host_side.h2d_seconds(indicators(h2d_seconds=0.0), PCIE4, pinned=False) == 0


def test_a_loop_that_waits_keeps_all_workers_busy() -> None:
    assert host_side.loading_seconds(waiting(workers=3, wait=0.1)) == pytest.approx(0.6)


def test_without_workers_loading_is_what_the_loop_waits() -> None:
    assert host_side.loading_seconds(waiting(workers=0, wait=0.1)) == pytest.approx(0.1)


def test_workers_without_cores_do_not_help() -> None:
    assert host_side.wait_seconds(1.0, 8, 3, 0.1) == pytest.approx(0.4)
    assert host_side.wait_seconds(1.0, 8, 16, 0.1) == pytest.approx(0.025)


@pytest.mark.parametrize(("loading", "busy", "workers"), [(0.0, 0.1, 0), (0.1, 0.1, 1), (0.11, 0.1, 2), (1.0, 0.1, 10)])
def test_enough_workers_load_a_step_while_one_computes(loading: float, busy: float, workers: int) -> None:
    assert host_side.workers_wanted(loading, busy) == workers
    assert host_side.wait_seconds(loading, workers, workers + 1, busy) == pytest.approx(0) or not workers

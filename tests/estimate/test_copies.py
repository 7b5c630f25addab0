"""Copies between host and GPU: pinned and pageable, waited for or not."""

import pytest
from steps import copy_to_gpu, copy_to_host, product, relu, step_with

from tonnage.estimate.copies import CopyModel, waits
from tonnage.estimate.step_time import time_step
from tonnage.estimate.time_model import TimeModel
from tonnage.hardware import find_gpu
from tonnage.program.trace import H2D, Operator, Phase, TensorSpec
from tonnage.units import GIB, MIB

H200, L4 = find_gpu("H200"), find_gpu("L4")
MODEL = CopyModel()


def test_pinned_memory_moves_at_the_speed_of_the_link() -> None:
    seconds = MODEL.device_seconds(copy_to_gpu(GIB, pinned=True), H200)
    assert GIB / seconds == pytest.approx(MODEL.link_share * H200.pcie_bytes_second, rel=1e-3)


def test_pageable_memory_moves_at_the_speed_of_the_host() -> None:
    to_gpu, to_host = (MODEL.device_seconds(copy, H200) for copy in (copy_to_gpu(GIB), copy_to_host(GIB)))
    assert GIB / to_gpu == pytest.approx(MODEL.pageable_h2d[-1][1], rel=1e-3)
    assert GIB / to_host == pytest.approx(MODEL.pageable_d2h[-1][1], rel=1e-3)


def test_pageable_memory_that_fits_a_buffer_moves_faster() -> None:
    small, large = (nbytes / MODEL.device_seconds(copy_to_gpu(nbytes), H200) for nbytes in (MIB, 64 * MIB))
    assert small > 2 * large


def test_a_slow_link_is_the_limit_of_pageable_memory_too() -> None:
    slow = find_gpu("K80")
    pinned, pageable = (MODEL.device_seconds(copy_to_gpu(GIB, pinned=kind), slow) for kind in (True, False))
    assert pageable >= pinned


def test_a_small_pageable_copy_is_the_hosts_work() -> None:
    small, large = copy_to_gpu(64 * 1024), copy_to_gpu(64 * MIB)
    assert MODEL.host_seconds(small) > 0 == MODEL.host_seconds(large)
    assert MODEL.device_seconds(small, H200) < MODEL.host_seconds(small)


def test_pinned_memory_costs_the_host_nothing() -> None:
    assert MODEL.host_seconds(copy_to_gpu(64 * 1024, pinned=True)) == 0.0


def test_a_trace_that_does_not_say_comes_from_a_program_that_waits() -> None:
    assert waits(Operator(H2D, (TensorSpec((4,), "float32"),), ()))
    assert not waits(copy_to_gpu(4, waits=False))


def test_a_copy_that_nobody_waits_for_is_hidden_behind_kernels() -> None:
    kernels = [(product(4096), Phase.FORWARD)] * 4
    work = [(relu(8), Phase.FORWARD)] * 200  # so that the host has something to do meanwhile
    waited, hidden = (
        time_step(
            step_with(*kernels, (copy_to_gpu(4096, pinned=True, waits=wait), Phase.COPY), *work), H200, TimeModel()
        )
        for wait in (True, False)
    )
    assert hidden.step_seconds < waited.step_seconds


def test_a_wait_makes_the_step_as_long_as_both_sides() -> None:
    times = time_step(step_with((product(4096), Phase.FORWARD), (copy_to_host(4), Phase.COPY)), L4, TimeModel())
    assert times.step_seconds >= times.busy_seconds + times.launch_seconds[0]

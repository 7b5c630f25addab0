"""From an estimate to the profile of a task."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tonnage.allocate.profiles import profile_of
from tonnage.allocate.sharing import memory_needed
from tonnage.estimate.estimate import Estimate, Interval, TimeEstimate

GIB = 1 << 30
NOTHING = Interval(0.0, 0.0, 0.0)
TIME = TimeEstimate(
    basis="calibrated", bound_by="host", step_seconds=Interval(0.2, 0.1, 0.4), forward_seconds=NOTHING,
    backward_seconds=NOTHING, optimizer_seconds=NOTHING, h2d_seconds=NOTHING, d2h_seconds=NOTHING,
    power_watts=Interval(300.0, 250.0, 350.0), energy_joules_step=NOTHING, utilisation=0.25,
)  # fmt: skip
MEMORY = Interval(10 * GIB, 9 * GIB, 11 * GIB)
ESTIMATE = Estimate(
    gpu="H200", fits=True, basis="calibrated", peak_allocated_bytes=MEMORY, peak_reserved_bytes=MEMORY,
    device_bytes=MEMORY, usable_bytes=140 * GIB, categories={}, largest=(), storage_bytes=0, h2d_bytes_step=0,
    d2h_bytes_step=0, coverage=0.9, time=TIME,
)  # fmt: skip


@pytest.mark.parametrize(("coverage", "risk"), [(0.9, 0.05), (0.98, 0.01)])
def test_the_high_bound_is_exceeded_as_often_as_the_coverage_leaves_on_one_side(coverage: float, risk: float) -> None:
    profile = profile_of(replace(ESTIMATE, coverage=coverage))
    assert memory_needed([profile], risk) == pytest.approx(11 * GIB)


def test_a_task_keeps_a_gpu_busy_while_its_kernels_run() -> None:
    assert profile_of(ESTIMATE).busy == 0.25


def test_a_task_without_kernels_still_wants_some_of_the_time() -> None:
    assert profile_of(replace(ESTIMATE, time=replace(TIME, utilisation=0.0))).busy > 0.0


def test_the_power_of_several_gpus_is_shared_out_among_them() -> None:
    gang = replace(ESTIMATE, gpu_count=2, time=replace(TIME, power_watts=Interval(600.0, 500.0, 700.0)))
    assert profile_of(gang).watts == profile_of(ESTIMATE).watts == 300.0


def test_a_profile_tells_what_stays_and_what_a_batch_takes() -> None:
    categories = {"context": 1 * GIB, "parameters": 2 * GIB, "optimizer_state": 4 * GIB, "activations": 3 * GIB}
    copies = Interval(0.01, 0.0, 0.1)
    time = replace(TIME, h2d_seconds=copies, d2h_seconds=copies, bandwidth_share=0.125)
    told = profile_of(replace(ESTIMATE, categories=categories, h2d_bytes_step=4096, time=time)).as_dict()
    assert (told["persistent_bytes"], told["transient_bytes"], told["batch_bytes"]) == (7 * GIB, 3 * GIB, 4096)
    assert (told["copy_seconds"], told["bandwidth"]) == (0.02, 0.125)

"""Estimates of small traces made by hand."""

from dataclasses import replace

import numpy as np
import pytest
from traces import PRODUCT, RELU, recorder_with, training_trace

from tonnage.estimate.estimate import Estimate
from tonnage.estimate.estimator import MOST_POINTS, Estimator, estimate_trace
from tonnage.estimate.memory import context_bytes
from tonnage.hardware import Gpu, all_gpus, find_gpu
from tonnage.program.trace import Category, Origin, Phase, Trace
from tonnage.units import MIB

H200 = find_gpu("H200")


def estimate_of(trace: Trace, gpu: Gpu = H200) -> Estimate:
    return Estimator(trace).estimate(gpu)


def gpu_with_room_for(trace: Trace, room_bytes: int) -> Gpu:
    """A GPU that leaves the allocator so many bytes."""
    return replace(H200, usable_bytes=context_bytes(trace, H200) + room_bytes)


# -- what is needed -------------------------------------------------------------------------------------------------------


def test_the_peak_is_the_most_that_was_in_use_at_once() -> None:
    estimate = estimate_of(training_trace())
    # In the second step's backward: weights 8, state 16, activations 32, gradients 8.
    assert estimate.peak_allocated_bytes.value == (8 + 16 + 32 + 8) * MIB


def test_categories_at_the_peak_add_up_to_what_is_allocated() -> None:
    estimate = estimate_of(training_trace())
    assert {name: size // MIB for name, size in estimate.categories.items() if name != "context"} == {
        "parameters": 8, "gradients": 8, "optimizer_state": 16, "activations": 32, "inputs": 0, "temporaries": 0,
        "workspace": 0,
    }  # fmt: skip
    assert estimate.device_bytes.value == estimate.peak_reserved_bytes.value + estimate.categories["context"]


@pytest.mark.parametrize("name", ["H200", "T4", "A100 SXM 80GB", "MI300X", "K80"])
def test_categories_add_up_on_every_kind_of_gpu(name: str) -> None:
    estimate = estimate_of(training_trace(operator=PRODUCT), find_gpu(name))
    inside = sum(size for category, size in estimate.categories.items() if category != "context")
    assert inside == estimate.peak_allocated_bytes.value


def test_blocks_are_rounded_up_as_the_allocator_does() -> None:
    recorder = recorder_with(RELU)
    recorder.allocate(1, 0, Phase.FORWARD)
    recorder.allocate(513, 0, Phase.FORWARD)
    recorder.call(0, 0, Phase.FORWARD)
    estimate = estimate_of(recorder.trace(Origin(program="x")))
    assert estimate.peak_allocated_bytes.value == 512 + 1024
    assert estimate.peak_reserved_bytes.value == 2 * MIB


def test_intervals_hold_their_value_and_are_wider_where_nothing_was_measured() -> None:
    trace = training_trace()
    ours, other = estimate_of(trace), estimate_of(trace, find_gpu("T4"))
    assert (ours.basis, other.basis) == ("calibrated", "specification")
    for bounds in (ours.peak_allocated_bytes, ours.peak_reserved_bytes, ours.device_bytes, other.device_bytes):
        assert 0 <= bounds.low <= bounds.value <= bounds.high
    assert other.peak_reserved_bytes.high > ours.peak_reserved_bytes.high


def test_the_largest_tensors_are_those_alive_at_the_peak() -> None:
    estimate = estimate_of(training_trace())
    assert [(t.bytes // MIB, t.category) for t in estimate.largest] == [
        (32, "activations"), (16, "optimizer_state"), (8, "parameters"), (8, "gradients"),
    ]  # fmt: skip
    assert estimate.largest[0].module == "Net.layer"


# -- libraries ------------------------------------------------------------------------------------------------------------


def test_cublas_takes_its_workspace_once_for_each_thread() -> None:
    estimate = estimate_of(training_trace(operator=PRODUCT, steps=5))
    assert estimate.categories["workspace"] == 2 * 32 * MIB  # forward, and autograd's thread


def test_without_backward_there_is_one_cublas_workspace() -> None:
    recorder = recorder_with(PRODUCT)
    for _ in range(4):
        recorder.call(0, 0, Phase.FORWARD)
        recorder.free(recorder.allocate(256 * 256 * 4, 0, Phase.FORWARD))
        recorder.end_step()
    estimate = estimate_of(recorder.trace(Origin(program="x", mode="inference", steps=4)))
    assert estimate.categories["workspace"] == 32 * MIB
    assert estimate_of(recorder.trace(Origin(program="x")), find_gpu("T4")).categories["workspace"] < 9 * MIB


def test_each_handle_of_cublas_makes_the_context_larger() -> None:
    plain, multiplies = training_trace(), training_trace(operator=PRODUCT)
    assert context_bytes(multiplies, H200) - context_bytes(plain, H200) == 2 * 65 * MIB


# -- what does not fit ----------------------------------------------------------------------------------------------------


def test_exactly_enough_memory_fits_and_a_little_less_does_not() -> None:
    trace = training_trace()
    needed = estimate_of(trace).peak_reserved_bytes.value
    assert estimate_of(trace, gpu_with_room_for(trace, needed)).fits
    assert not estimate_of(trace, gpu_with_room_for(trace, needed - 2 * MIB)).fits
    assert Estimator(trace).fits(gpu_with_room_for(trace, needed))
    assert not Estimator(trace).fits(gpu_with_room_for(trace, needed - 2 * MIB))


def test_the_moment_of_failure_names_step_phase_operator_and_module() -> None:
    trace = training_trace(weights=12 * MIB)
    estimate = estimate_of(trace, gpu_with_room_for(trace, 60 * MIB))
    moment = estimate.out_of_memory
    assert moment is not None
    # The first step needs 12 + 32 + 12; the optimizer's state comes after its activations, so the second needs more.
    assert (moment.step, moment.phase, moment.operator, moment.module) == (2, "forward", "aten::relu", "Net.layer")
    assert moment.requested_bytes == 32 * MIB
    assert moment.allocated_bytes == (12 + 24) * MIB
    assert estimate.peak_allocated_bytes.value == (12 + 24 + 32 + 12) * MIB  # what would have been needed


def test_a_gpu_smaller_than_its_context_holds_nothing() -> None:
    trace = training_trace()
    estimate = estimate_of(trace, replace(H200, usable_bytes=MIB))
    assert not estimate.fits
    assert estimate.out_of_memory is not None
    assert (estimate.out_of_memory.step, estimate.out_of_memory.phase) == (1, "setup")


def test_cached_blocks_are_given_back_before_memory_runs_out() -> None:
    recorder = recorder_with(RELU)
    recorder.call(0, 0, Phase.FORWARD)
    recorder.free(recorder.allocate(40 * MIB, 0, Phase.FORWARD))
    recorder.allocate(60 * MIB, 0, Phase.FORWARD)
    trace = recorder.trace(Origin(program="x"))
    assert estimate_of(trace).peak_reserved_bytes.value == 100 * MIB
    assert estimate_of(trace, gpu_with_room_for(trace, 64 * MIB)).fits


# -- events ---------------------------------------------------------------------------------------------------------------


def test_an_emptied_cache_lowers_what_is_reserved() -> None:
    def trace(empties: bool) -> Trace:
        recorder = recorder_with(RELU)
        recorder.call(0, 0, Phase.FORWARD)
        recorder.free(recorder.allocate(40 * MIB, 0, Phase.FORWARD))
        if empties:
            recorder.empty_cache()
        recorder.allocate(60 * MIB, 0, Phase.FORWARD)
        return recorder.trace(Origin(program="x"))

    assert estimate_of(trace(empties=False)).peak_reserved_bytes.value == 100 * MIB
    assert estimate_of(trace(empties=True)).peak_reserved_bytes.value == 60 * MIB


def test_the_programs_own_reset_of_its_counters_does_not_hide_a_peak() -> None:
    recorder = recorder_with(RELU)
    recorder.call(0, 0, Phase.FORWARD)
    recorder.free(recorder.allocate(40 * MIB, 0, Phase.FORWARD))
    recorder.reset_peak()
    recorder.allocate(10 * MIB, 0, Phase.FORWARD)
    assert estimate_of(recorder.trace(Origin(program="x"))).peak_allocated_bytes.value == 40 * MIB


def test_an_empty_trace_needs_its_context_only() -> None:
    report = estimate_trace(recorder_with().trace(Origin(program="x")), [H200])
    (estimate,) = report.estimates
    assert estimate.fits
    assert estimate.peak_allocated_bytes.value == estimate.peak_reserved_bytes.value == 0
    assert estimate.device_bytes.value == estimate.categories["context"]
    assert report.curve is None


def test_memory_without_any_operator_is_counted_too() -> None:
    recorder = recorder_with()
    recorder.allocate(40 * MIB, 0, Phase.SETUP)
    trace = recorder.trace(Origin(program="x"))
    report = estimate_trace(trace, [H200, gpu_with_room_for(trace, 20 * MIB)])
    assert [e.fits for e in report.estimates] == [True, False]
    assert report.estimates[1].out_of_memory is not None
    assert report.estimates[1].out_of_memory.phase == "setup"


# -- the curve ------------------------------------------------------------------------------------------------------------


def test_the_curve_has_a_point_for_each_request_and_marks_steps_and_peak() -> None:
    curve = Estimator(training_trace(steps=2)).curve(H200)
    assert curve is not None
    total = np.array(list(curve.categories.values())).sum(axis=0)
    assert len(total) == len(curve.phases)
    assert int(total[curve.peak]) == int(total.max()) == 64 * MIB
    assert len(curve.step_ends) == 2
    assert list(curve.step_ends) == sorted(curve.step_ends)
    assert max(curve.step_ends) < len(total)
    assert curve.phases[:3] == ("setup", "forward", "backward")


def test_a_long_curve_is_thinned_out_and_keeps_its_peak() -> None:
    trace = training_trace(steps=2000)
    curve = Estimator(trace).curve(H200)
    assert curve is not None
    total = np.array(list(curve.categories.values())).sum(axis=0)
    assert len(total) <= MOST_POINTS + 1
    assert int(total[curve.peak]) == 64 * MIB
    assert len(curve.step_ends) == 2000


# -- reports --------------------------------------------------------------------------------------------------------------


def test_a_report_has_an_estimate_for_each_gpu_in_the_order_asked() -> None:
    gpus = list(all_gpus())
    report = estimate_trace(training_trace(batch=8), gpus)
    assert [e.gpu for e in report.estimates] == [gpu.name for gpu in gpus]
    assert report.fits_somewhere
    assert (report.batch, report.steps_traced, report.mode) == (8, 3, "training")


def test_one_trace_gives_the_same_estimate_every_time_and_in_any_company() -> None:
    trace = training_trace(operator=PRODUCT)
    alone = estimate_trace(trace, [find_gpu("T4")]).estimates[0]
    among = next(e for e in estimate_trace(trace, list(all_gpus())).estimates if e.gpu == alone.gpu)
    assert alone == among


def test_categories_follow_the_tags() -> None:
    trace = training_trace()
    assert {Category(int(c)) for c in trace.block_category} == {
        Category.PARAMETERS, Category.GRADIENTS, Category.OPTIMIZER_STATE, Category.ACTIVATIONS,
    }  # fmt: skip

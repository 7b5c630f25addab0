"""What each call costs the host."""

import numpy as np
import pytest
from steps import Call, copy_to_gpu, product, relu, step_with
from traces import recorder_with

from tonnage.estimate.host_time import HostModel
from tonnage.estimate.step import last_step
from tonnage.program.trace import Operator, Origin, Phase, TensorSpec

MODEL = HostModel(
    operators={"aten::mm": 10e-6}, operator=3e-6, forward=2.0, backward=1.0, optimizer=0.5, forward_call=1e-6,
    backward_call=2e-6, optimizer_call=3e-6, view=4e-6, entered=5e-6, listed=6e-6, launch=7e-6, recorded=30e-6,
    backward_start=100e-6, optimizer_start=200e-6, copy=8e-6, own_operator=9e-6, own_byte=1e-9, random_number=2e-9,
)  # fmt: skip


def microseconds(*calls: Call, model: HostModel = MODEL) -> list[float]:
    return [round(seconds * 1e6, 3) for seconds in model.seconds(step_with(*calls)).tolist()]


def test_an_operator_costs_by_its_phase() -> None:
    calls = [(product(8), phase) for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)]
    assert microseconds(*calls) == [2 * 10 + 1 + 30, 10 + 2 + 100, 0.5 * 10 + 3 + 200]


def test_an_operator_that_was_never_measured_costs_as_usual() -> None:
    assert microseconds((relu(8), Phase.FORWARD)) == [2 * 3 + 1]


def test_copies_have_a_cost_of_their_own() -> None:
    assert microseconds((copy_to_gpu(4), Phase.COPY)) == [8]


def test_each_backward_pass_has_to_wake_its_thread() -> None:
    there = [(product(8), Phase.FORWARD), (product(8), Phase.BACKWARD), (product(8), Phase.BACKWARD)]
    assert microseconds(*there, *there) == [51, 112, 12] * 2


def test_only_a_forward_that_is_followed_by_a_backward_is_recorded() -> None:
    assert microseconds((product(8), Phase.FORWARD)) == [21]


def test_an_optimizer_gathers_its_parameters_first() -> None:
    assert microseconds((product(8), Phase.OPTIMIZER), (product(8), Phase.OPTIMIZER)) == [208, 8]


def test_long_lists_of_tensors_cost_more() -> None:
    tensor = TensorSpec((4,), "float32")
    short, long = (Operator("aten::_foreach_add_", (tensor,) * count, ()) for count in (8, 18))
    first, second = microseconds((short, Phase.BACKWARD), (long, Phase.BACKWARD))
    assert second - first == pytest.approx(10 * 6 - 100, abs=0.1)


def test_what_happens_between_calls_counts_for_the_next() -> None:
    recorder = recorder_with(relu(8))
    recorder.view()
    recorder.enter()
    recorder.host_operator(1000, 500)
    recorder.call(0, 0, Phase.FORWARD)
    recorder.call(0, 0, Phase.FORWARD)
    recorder.end_step()
    first, second = MODEL.seconds(last_step(recorder.trace(Origin(program="x"))))
    assert first - second == pytest.approx(4e-6 + 5e-6 + 9e-6 + 1000 * 1e-9 + 500 * 2e-9)


def test_a_faster_host_takes_proportionally_less() -> None:
    step = step_with((product(8), Phase.FORWARD), (product(8), Phase.BACKWARD))
    assert np.allclose(HostModel(speed=4.0).seconds(step), HostModel().seconds(step) / 4)

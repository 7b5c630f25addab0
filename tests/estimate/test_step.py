"""Which calls make a step, and what it is made of."""

from dataclasses import replace

import numpy as np
import pytest
from steps import copy_to_gpu, product, relu, square, step_with, trace_of
from traces import RELU, training_trace

from tonnage.errors import InvalidFile
from tonnage.estimate.step import last_step, steady_steps
from tonnage.estimate.step_time import time_step
from tonnage.estimate.time_model import TimeModel
from tonnage.hardware import find_gpu
from tonnage.program.trace import Operator, Phase
from tonnage.units import MIB

H200 = find_gpu("H200")


def test_a_call_that_only_repeats_a_copy_is_left_out() -> None:
    copy, asked = copy_to_gpu(64), square("aten::_to_copy", 4, inputs=1)
    step = step_with((copy, Phase.COPY), (asked, Phase.COPY), (product(64), Phase.FORWARD))
    assert step.operator_names == (copy.name, "aten::mm")
    assert step.kept.tolist() == [True, False, True]


def test_a_cast_on_the_gpu_is_no_copy_from_the_host() -> None:
    cast = square("aten::_to_copy", 64, inputs=1)
    assert step_with((product(64), Phase.FORWARD), (cast, Phase.FORWARD)).kept.all()


def test_moments_are_known_for_calls_that_were_left_out() -> None:
    copy, asked = copy_to_gpu(64), square("aten::_to_copy", 4, inputs=1)
    step = step_with((copy, Phase.COPY), (asked, Phase.COPY), (product(64), Phase.FORWARD))
    assert step.of_all_calls(np.array([1.0, 3.0])).tolist() == [1.0, 1.0, 3.0]


def test_the_last_step_holds_nothing_of_those_before() -> None:
    trace = trace_of([(product(64), Phase.FORWARD)], [(relu(64), Phase.FORWARD), (relu(64), Phase.FORWARD)])
    assert last_step(trace).operator_names == ("aten::relu",)
    assert len(last_step(trace).operator) == 2


def test_steady_steps_are_all_but_the_first() -> None:
    first, even, odd = [(product(64), Phase.FORWARD)] * 9, [(relu(64), Phase.FORWARD)], [(relu(32), Phase.FORWARD)] * 3
    step = steady_steps(trace_of(first, even, odd, even, odd))
    assert step.turns == 4
    assert len(step.operator) == 8


def test_steady_steps_average() -> None:
    short, long = [(product(1024), Phase.FORWARD)] * 10, [(product(1024), Phase.FORWARD)] * 30
    both = time_step(steady_steps(trace_of(short, short, long, short, long)), H200, TimeModel())
    alone = [time_step(last_step(trace_of(calls)), H200, TimeModel()).busy_seconds for calls in (short, long)]
    assert both.busy_seconds == pytest.approx(sum(alone) / 2)


def test_of_many_steps_only_the_last_ones_count() -> None:
    assert steady_steps(trace_of(*[[(relu(8), Phase.FORWARD)]] * 100)).turns == 32


def test_a_trace_without_calls_is_a_step_of_nothing() -> None:
    assert len(last_step(trace_of([])).operator) == 0


def test_an_operator_that_makes_no_sense_is_refused() -> None:
    nonsense = replace(product(64), inputs=(None, None))
    with pytest.raises(InvalidFile, match="aten::mm that makes no sense"):
        step_with((nonsense, Phase.FORWARD))


@pytest.mark.parametrize("name", ["aten::convolution", "aten::bmm", "aten::_cudnn_rnn", "aten::convolution_backward"])
def test_an_operator_without_tensors_is_refused(name: str) -> None:
    with pytest.raises(InvalidFile, match=name):
        step_with((Operator(name, (), ()), Phase.FORWARD))


def test_the_footprint_is_the_most_that_is_in_use() -> None:
    step = last_step(training_trace(operator=RELU))
    assert set(step.works.footprint.tolist()) == {float((8 + 32 + 8 + 16) * MIB)}

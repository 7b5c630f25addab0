"""The step as something to look at: what is launched and runs when, and the tree of modules."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from page_reports import HOSTILE
from traces import PRODUCT, RELU, recorder_with, training_trace

from tonnage.estimate.estimator import Estimator, estimate_trace
from tonnage.estimate.page import render_page
from tonnage.estimate.step_tree import MOST_BOXES, Box, frames, grow_tree
from tonnage.estimate.step_view import MOST_STRETCHES, StepView
from tonnage.estimate.time_model import TimeModel
from tonnage.hardware import find_gpu
from tonnage.program.trace import H2D, Operator, Origin, Phase, TensorSpec, Trace

H200 = find_gpu("H200")
SPEC = TensorSpec((4096, 4096), "float32")
COPY = Operator(H2D, (SPEC,), (SPEC,))


def view_of(trace: Trace) -> StepView:
    view = Estimator(trace, TimeModel()).step_view(H200)
    assert view is not None
    return view


def trace_of(calls: list[tuple[int, str, Phase]], *operators: Operator) -> Trace:
    """One step of these calls: operator, module, phase."""
    recorder = recorder_with(*operators)
    for operator, module, phase in calls:
        recorder.call(operator, recorder.module(module) if module else 0, phase)
    recorder.end_step()
    return recorder.trace(Origin(program="train.py", steps=1))


def boxes(box: Box) -> list[Box]:
    return [box, *(below for child in box.children for below in boxes(child))]


def test_calls_run_one_after_the_other_within_the_step() -> None:
    view = view_of(training_trace())
    assert [call.phase for call in view.device] == ["forward", "backward", "optimizer"]
    assert all(before.end_seconds <= after.start_seconds for before, after in pairwise(view.device))
    assert view.device[-1].end_seconds <= view.step_seconds * 1.000001
    assert view.calls == 3


def test_what_the_host_launches_stays_within_the_step() -> None:
    view = view_of(trace_of([(1, "", Phase.COPY)] + [(0, "net", Phase.FORWARD)] * 50, PRODUCT, COPY))
    assert all(0 <= call.start_seconds <= call.end_seconds <= view.step_seconds for call in view.host)
    assert sum(call.calls for call in view.host) == 51


def test_a_host_that_is_ahead_launches_for_a_later_step() -> None:
    slow = Operator("aten::mm", (SPEC, SPEC), (SPEC,))
    view = view_of(trace_of([(0, "net", Phase.FORWARD)] * 20, slow))
    assert all(call.ahead for call in view.host)
    assert not any(call.ahead for call in view.device)


def test_copies_are_a_phase_of_their_own() -> None:
    view = view_of(trace_of([(0, "", Phase.FORWARD), (1, "net", Phase.FORWARD)], COPY, RELU))
    assert [call.phase for call in view.device] == ["copy", "forward"]
    assert [child.name for child in view.tree.children] == ["copies", "net"]


def test_a_step_of_many_calls_is_thinned_out_but_complete() -> None:
    calls = [(i % 2, f"net.{i % 300}", (Phase.FORWARD, Phase.BACKWARD)[i >= 10_000]) for i in range(20_000)]
    view = view_of(trace_of(calls, RELU, PRODUCT))
    for lane in (view.host, view.device):
        assert len(lane) <= MOST_STRETCHES
        assert sum(stretch.calls for stretch in lane) == 20_000
    assert len(boxes(view.tree)) <= 2 * MOST_BOXES
    assert view.tree.total_seconds == pytest.approx(view.busy_seconds)


def test_phases_that_take_turns_all_the_time_are_thinned_out_too() -> None:
    calls = [(i % 2, "net", (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)[i % 3]) for i in range(6_000)]
    view = view_of(trace_of(calls, RELU, PRODUCT))
    for lane in (view.host, view.device):
        assert len(lane) <= MOST_STRETCHES
        assert sum(stretch.calls for stretch in lane) == 6_000


def test_a_page_of_twenty_thousand_calls_stays_small() -> None:
    calls = [(i % 2, f"net.{i % 3000}.layer", Phase.FORWARD) for i in range(20_000)]
    trace = trace_of(calls, RELU, PRODUCT)
    page = render_page(estimate_trace(trace, [H200], time_model=TimeModel()))
    assert len(page.encode()) < 600_000


def test_the_time_of_a_box_is_that_of_what_is_in_it() -> None:
    view = view_of(trace_of([(i % 2, f"net.{i % 7}.mlp", Phase.FORWARD) for i in range(100)], RELU, PRODUCT))
    for box in boxes(view.tree):
        if box.children:
            assert sum(child.total_seconds for child in box.children) == pytest.approx(box.total_seconds)


def test_modules_become_a_tree_with_operators_as_leaves() -> None:
    view = view_of(trace_of([(0, "model.layers.3.mlp", Phase.FORWARD), (0, "", Phase.OPTIMIZER)], PRODUCT))
    (model, optimizer) = view.tree.children
    path = [box.name for box in boxes(model)]
    assert path == ["model", "layers", "3", "mlp", "mm"]
    assert boxes(model)[-1].family == "product"
    assert optimizer.name == "the optimizer"


def test_a_path_of_any_length_has_a_limited_depth() -> None:
    assert frames("a.b", "forward") == ["a", "b"]
    assert len(frames(".".join(["a"] * 1000), "forward")) == 25


def test_what_nobody_could_see_is_put_together() -> None:
    sums = [(0, 0, 0, 1.0), *((module, 0, 1, 1e-6) for module in range(1, 5000))]
    tree = grow_tree(sums, [f"net.{i}" for i in range(5000)], (RELU,), ["pointwise"])
    (net,) = tree.children
    assert [child.name for child in net.children] == ["0", "4999 more"]
    assert net.children[1].seconds == pytest.approx((0, 4999e-6, 0, 0))


def test_the_longest_calls_come_first() -> None:
    view = view_of(trace_of([(0, "small", Phase.FORWARD), (1, "large", Phase.FORWARD)], RELU, PRODUCT))
    assert [call.module for call in view.longest] == ["large", "small"]


def test_a_view_is_plain_data() -> None:
    plain = json.loads(json.dumps(view_of(training_trace()).as_dict()))
    assert plain["gpu"] == "H200"
    assert plain["tree"]["children"]


def test_there_is_no_view_without_a_time_model_or_without_calls() -> None:
    assert Estimator(training_trace()).step_view(H200) is None
    assert estimate_trace(training_trace(), [H200]).step is None
    assert Estimator(trace_of([]), TimeModel()).step_view(H200) is None


def test_a_report_holds_the_step_on_the_gpu_of_its_curve() -> None:
    report = estimate_trace(training_trace(), [find_gpu("L4"), H200], time_model=TimeModel())
    assert report.step is not None
    assert report.curve is not None
    assert report.step.gpu == report.curve.gpu == "H200"
    assert estimate_trace(training_trace(), [H200], curve=False, time_model=TimeModel()).step is None


def test_hostile_names_of_modules_and_operators_are_only_text() -> None:
    name = HOSTILE.replace(".", "")
    relu = Operator(f"aten::{name}", RELU.inputs, RELU.outputs)
    page = render_page(estimate_trace(trace_of([(0, name, Phase.FORWARD)], relu), [H200], time_model=TimeModel()))
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page

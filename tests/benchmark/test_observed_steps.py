"""From rows of the database to the step that they were observed in."""

from datetime import UTC, datetime

import numpy as np
from observed import host_row, host_rows, matrix, pointwise, product

from tonnage.benchmark.observed_steps import observed_step
from tonnage.estimate.step import Step
from tonnage.program.trace import D2H, H2D, Operator, Phase
from tonnage.store.rows import HostRow, Measurement

MEASUREMENT = Measurement(
    key="a", campaign="", family="mlp", structure={}, batch=8, input_shape=(), measured_at=datetime(2026, 1, 1, tzinfo=UTC),
    allocated_bytes=1000,
)  # fmt: skip
COPY = Operator("aten::_to_copy", (matrix(8, 4),), (matrix(8, 4),))
ITEM = Operator("aten::_local_scalar_dense", (matrix(1, 1),), ())


def observed(*rows: HostRow) -> Step:
    return observed_step(MEASUREMENT, rows)


def names(step: Step) -> list[str]:
    return [step.operators[index].name for index in step.operator]


def test_calls_of_three_observed_steps_become_those_of_one() -> None:
    step = observed(host_row(product(8, 8, 8), "forward", 5))
    assert names(step) == ["aten::mm"] * 5
    assert step.turns == 1


def test_phases_come_in_their_order() -> None:
    relu = pointwise("aten::relu", 8, 8)
    step = observed(*(host_row(relu, phase, 1) for phase in ("optimizer", "backward", "forward")))
    assert step.phase.tolist() == [Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER]


def test_an_operator_that_both_passes_call_is_one_operator() -> None:
    step = observed(host_row(product(8, 8, 8), "forward", 1), host_row(product(8, 8, 8), "backward", 2))
    assert len(step.operators) == 1
    assert len(step.works) == 1


def test_copies_before_the_forward_pass_go_to_the_gpu_and_later_ones_to_the_host() -> None:
    step = observed(
        host_row(COPY, "copy", 1), host_row(product(8, 4, 8), "forward", 1), host_row(ITEM, "copy", 1)
    )  # fmt: skip
    assert names(step) == [H2D, "aten::mm", D2H]
    assert step.is_copy.tolist() == [True, False, True]


def test_a_cast_in_the_forward_pass_is_no_copy() -> None:
    assert names(observed(host_row(COPY, "forward", 1))) == ["aten::_to_copy"]


def test_views_and_modules_are_spread_over_the_calls_of_their_phase() -> None:
    step = observed(*host_rows(batch=8, width=16, depth=4))
    forward = step.phase == Phase.FORWARD
    assert step.views[forward].sum() == 4
    assert step.entered[forward].sum() == 8
    assert step.entered[~forward].sum() == 0
    assert step.entered.max() - step.entered[forward].min() <= 1


def test_the_footprint_is_what_was_allocated() -> None:
    assert set(observed(host_row(product(8, 8, 8), "forward", 1)).works.footprint.tolist()) == {1000.0}


def test_rows_of_nothing_are_a_step_of_nothing() -> None:
    assert len(observed().operator) == 0
    assert np.array_equal(observed().kept, np.ones(0, dtype=bool))

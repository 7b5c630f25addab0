"""The inverse question has the same answer as the forward one."""

import pytest
from clusters import H200, features, model
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.errors import UsageError
from tonnage.estimate.cluster_inverse import at_batch, configuration, configurations_meeting, exchange_seconds
from tonnage.estimate.cluster_selection import Constraints
from tonnage.hardware import find_gpu

MODEL = model()
NETWORK = features(dense_multiply_adds=1e10, layer_bytes=1e8, operator_calls=80.0, parameters=1e6, h2d_bytes=1e5)
BATCHES, COUNTS, GPUS = (1, 8, 64, 256), (1, 2, 4), (H200, find_gpu("A100 SXM 80GB"))


@given(st.floats(1e-4, 0.1))
@settings(max_examples=15, deadline=None)
def test_exactly_those_meet_a_time_whose_prediction_does(seconds: float) -> None:
    limits = Constraints(max_step_seconds=seconds, max_gpus=2)
    answer = configurations_meeting(MODEL, [NETWORK], GPUS, batches=BATCHES, counts=COUNTS, constraints=limits)
    chosen = {(choice.gpu, choice.batch, choice.gpus) for choice in answer.configurations}
    expected = {
        (gpu.name, batch, count)
        for gpu in GPUS
        for batch in BATCHES
        for count in (1, 2)
        if count <= batch and configuration(MODEL, NETWORK, gpu, batch, count).step_seconds.value <= seconds
    }
    assert chosen == expected


def test_the_cheapest_comes_first() -> None:
    limits = Constraints(max_step_seconds=1.0)
    answer = configurations_meeting(MODEL, [NETWORK], GPUS, batches=BATCHES, constraints=limits)
    costs = [choice.byte_seconds_sample for choice in answer.configurations]
    assert len(costs) == 8
    assert costs == sorted(costs)


def test_where_nothing_is_fast_enough_the_time_binds_by_a_factor() -> None:
    limits = Constraints(max_step_seconds=1e-6)
    answer = configurations_meeting(MODEL, [NETWORK], [H200], batches=[8], constraints=limits)
    assert answer.configurations == ()
    assert answer.binding == "step_seconds"
    assert answer.nearest is not None
    assert answer.factor == pytest.approx(answer.nearest.step_seconds.value / 1e-6)
    assert "step_seconds binds: the nearest configuration (1 x H200, batch 8, float32) needs" in answer.reason


def test_memory_binds_where_memory_is_short() -> None:
    limits = Constraints(max_step_seconds=10.0, max_bytes=1000)
    answer = configurations_meeting(MODEL, [NETWORK], [H200], batches=[8], constraints=limits)
    assert answer.binding == "bytes"


def test_the_batch_scales_work_and_leaves_the_network() -> None:
    twice = at_batch(NETWORK, 16)
    assert twice.counts["dense_multiply_adds"] == 2 * NETWORK.counts["dense_multiply_adds"]
    assert twice.counts["parameters"] == NETWORK.counts["parameters"]


def test_gradients_are_exchanged_between_several_gpus_only() -> None:
    assert exchange_seconds(NETWORK, H200, 1) == 0
    assert exchange_seconds(NETWORK, H200, 4) == pytest.approx(1.5 * 4e6 / 450e9)


def test_a_question_without_batches_is_refused() -> None:
    with pytest.raises(UsageError):
        configurations_meeting(MODEL, [NETWORK], [H200], batches=[], constraints=Constraints())

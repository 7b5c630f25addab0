"""The features of a trace, counted by hand."""

import pytest
from traces import PRODUCT, recorder_with, training_trace

from tonnage.estimate.trace_features import features_of_trace, multiply_adds
from tonnage.program.trace import Operator, Origin, Phase, TensorSpec


def spec(*shape: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(shape, dtype)


CONVOLUTION = Operator(
    "aten::convolution", (spec(2, 3, 8, 8), spec(16, 3, 3, 3), None), (spec(2, 16, 8, 8),), {"transposed": False}
)
BACKWARD = Operator(
    "aten::convolution_backward",
    (spec(2, 16, 8, 8), spec(2, 3, 8, 8), spec(16, 3, 3, 3)),
    (spec(16, 3, 3, 3),),
    {"transposed": False, "output_mask": (False, True, True)},
)
ATTENTION = Operator(
    "aten::_scaled_dot_product_flash_attention",
    tuple(spec(2, 4, 10, 16, dtype="bfloat16") for _ in range(3)),
    (spec(2, 4, 10, 16, dtype="bfloat16"),),
)
RECURRENT = Operator(
    "aten::_cudnn_rnn",
    (spec(5, 20, 30), spec(800, 30), spec(800, 200), spec(800), spec(800)),
    (spec(5, 20, 200),),
    {"hidden_size": 200, "num_layers": 1, "batch_first": True},
)


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        (PRODUCT, 256**3),
        (CONVOLUTION, 2 * 16 * 8 * 8 * 3 * 9),
        (BACKWARD, 2 * 16 * 8 * 8 * 3 * 9),  # of the weights alone
        (ATTENTION, 2 * (2 * 4 * 10 * 10 * 16)),
        (RECURRENT, 5 * 20 * 800 * 230),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_computing_strength(operator: Operator, expected: int) -> None:
    assert multiply_adds(operator) == expected


def test_one_step_is_counted_whatever_the_number_of_steps() -> None:
    three, five = (features_of_trace(training_trace(steps=steps, operator=PRODUCT)) for steps in (3, 5))
    assert three.counts == five.counts
    assert three.counts["dense_multiply_adds"] == 3 * 256**3  # one call in each phase
    assert three.counts["layer_bytes"] == 4 * 256**2
    assert (three.kind, three.mode, three.precision) == ("dense", "training", "float32")


@pytest.mark.parametrize(
    ("operator", "kind", "precision"),
    [
        (CONVOLUTION, "convolution", "float32"),
        (ATTENTION, "attention", "bfloat16"),
        (RECURRENT, "recurrent", "float32"),
    ],
    ids=["convolution", "attention", "recurrent"],
)
def test_the_kind_and_the_precision_of_a_network(operator: Operator, kind: str, precision: str) -> None:
    recorder = recorder_with(operator)
    recorder.call(0, 0, Phase.FORWARD)
    recorder.end_step()
    found = features_of_trace(recorder.trace(Origin(program="serve.py", mode="inference")))
    assert (found.kind, found.mode, found.precision) == (kind, "inference", precision)
    assert found.counts["recurrent_positions"] == (20 if operator is RECURRENT else 0)

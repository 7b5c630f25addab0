"""Points: one key for equal work; steps that run part by part; the same as a script that can be estimated."""

from pathlib import Path

import pytest
import torch

from tonnage.api import estimate
from tonnage.benchmark.workloads import (
    CONDITIONS,
    FAMILIES,
    Point,
    Value,
    as_program,
    find_family,
    make_point,
    prepare_step,
)
from tonnage.errors import UsageError

SMALL: dict[str, dict[str, Value]] = {
    "convolutional": {"convolutions": 2, "conv1": 8, "conv2": 8, "norm": "batch", "input": "16x16x3"},
    "mlp": {"depth": 2, "width": 32, "inputs": 16},
    "rnn": {"hidden": 16, "inputs": 8, "sequence": 4},
    "transformer": {"depth": 1, "width": 32, "heads": 2, "sequence": 8, "vocabulary": 256},
    "unet": {"size": 32, "width": 8, "depth": 1},
}


def small(family: str, **conditions: Value) -> Point:
    return make_point(family, {**SMALL[family], "batch": 2, **conditions})


KEYS = ["f8a359f7b21716b5", "bd45c83b90327f25", "136d72a087813422", "d697b4092b75818b", "03eae031607ad5ec"]


# -- keys -----------------------------------------------------------------------------------------------------------------


def test_keys_never_change() -> None:
    keys = [make_point(family, values).key for family, values in SMALL.items()]
    assert keys == KEYS  # rows of databases are found by them


def test_the_order_of_values_does_not_matter() -> None:
    values = SMALL["mlp"]
    assert make_point("mlp", dict(reversed(values.items()))).key == make_point("mlp", values).key


@pytest.mark.parametrize("condition", [condition.name for condition in CONDITIONS])
def test_every_condition_is_part_of_the_key(condition: str) -> None:
    other = {"batch": 3, "precision": "float16", "optimizer": "adam", "memory_format": "channels_last"}
    assert small("unet").key != small("unet", **{condition: other.get(condition, "inference")}).key


def test_inference_has_no_optimizer() -> None:
    assert small("mlp", mode="inference", optimizer="adam") == small("mlp", mode="inference", optimizer="sgd")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"batch": 0}, "batch must be a whole number from 1 to 4096, not 0"),
        ({"precision": "float8"}, "precision must be one of float32, bfloat16, float16, not 'float8'"),
        ({"memory_format": "channels_last"}, "memory_format of mlp must be contiguous: it takes no images"),
    ],
)
def test_a_wrong_condition_is_named(values: dict[str, Value], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_point("mlp", values)
    assert caught.value.message == message


# -- steps ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("precision", "optimizer"), [("float32", "momentum"), ("bfloat16", "adamw")])
def test_training_steps_lower_the_loss(family: str, precision: str, optimizer: str) -> None:
    torch.manual_seed(0)
    step = prepare_step(small(family, precision=precision, optimizer=optimizer), "cpu")
    for group in step.optimizer.param_groups:
        group["lr"] = 0.01
    step()
    first = step.value
    for _ in range(4):
        step()
    assert step.value < first


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "adamw"])
def test_the_optimizer_moves_every_parameter(optimizer: str) -> None:
    step = prepare_step(small("mlp", optimizer=optimizer), "cpu")
    before = [parameter.clone() for parameter in step.module.parameters()]
    step()
    assert all((old != new).any() for old, new in zip(before, step.module.parameters(), strict=True))


def test_float16_scales_its_gradients() -> None:
    step = prepare_step(small("mlp", precision="float16"), "cpu")
    step()
    assert step.scaler.is_enabled()


@pytest.mark.parametrize("family", FAMILIES)
def test_inference_keeps_no_gradients(family: str) -> None:
    step = prepare_step(small(family, mode="inference", precision="bfloat16"), "cpu")
    step()
    assert not step.outputs.requires_grad
    assert not step.module.training


def test_channels_last_reaches_inputs_and_weights() -> None:
    step = prepare_step(small("convolutional", memory_format="channels_last"), "cpu")
    step.copy()
    assert step.inputs.is_contiguous(memory_format=torch.channels_last)
    assert step.module.conv2.weight.is_contiguous(memory_format=torch.channels_last)


# -- programs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("mode", ["training", "inference"])
def test_every_program_compiles(family: str, precision: str, mode: str) -> None:
    compile(as_program(small(family, precision=precision, mode=mode)), family, "exec")


@pytest.mark.parametrize(
    ("family", "conditions"),
    [
        ("convolutional", {"memory_format": "channels_last", "optimizer": "adam"}),
        ("transformer", {"precision": "float16", "optimizer": "adamw"}),
        ("rnn", {"mode": "inference", "precision": "bfloat16"}),
    ],
)
def test_the_program_can_be_estimated(tmp_path: Path, family: str, conditions: dict[str, Value]) -> None:
    point = small(family, **conditions)
    script = tmp_path / "point.py"
    script.write_text(as_program(point))

    report = estimate(str(script), gpus=["H200"])

    assert report.parameter_count == find_family(family).parameter_count(point.structure)
    assert (report.mode, report.batch, report.warnings) == (point.mode, 2, ())

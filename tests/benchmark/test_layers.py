"""Single layers: drawn alike everywhere, each kind can be made and run, rows stay few."""

import inspect
from collections import Counter

import pytest

from tonnage.benchmark.layers import KINDS, Layer, sample_layers
from tonnage.benchmark.layers import kinds as names
from tonnage.benchmark.layers.layer import is_reasonable
from tonnage.benchmark.layers.scenes import MAKERS, build, elementwise, reductions, updates
from tonnage.benchmark.measure_layers import measure_layers
from tonnage.errors import NotFound
from tonnage.store.rows import Status

# Rows of databases are found by keys: if these change, everything would be measured again.
KEYS = ["c29a5ae408b67870", "e86252dea683fbb8", "23180934549e619c"]


def test_drawn_layers_never_change() -> None:
    assert [layer.key for layer in sample_layers(3, seed=1)] == KEYS


def test_no_layer_comes_twice() -> None:
    assert len({layer.key for layer in sample_layers(500, seed=3)}) == 500


def test_every_kind_is_drawn() -> None:
    assert {layer.kind for layer in sample_layers(1500, seed=1)} == set(KINDS)


def test_kinds_are_drawn_as_often_as_their_weights_say() -> None:
    drawn = Counter(layer.kind for layer in sample_layers(2000, seed=1, kinds=["layer_norm", "ranking"]))
    assert 2.5 < drawn["layer_norm"] / drawn["ranking"] < 4.5  # 5 to 1.5, less what is too large


def test_a_small_space_gives_what_it_has() -> None:
    assert 0 < len(list(sample_layers(50, seed=1, kinds=["copy"], most_elements=70))) < 50


@pytest.mark.parametrize("most", [1 << 14, 1 << 20])
def test_layers_can_be_kept_small(most: int) -> None:
    assert all(is_reasonable(layer, most) for layer in sample_layers(100, seed=2, most_elements=most))


def test_optimizers_that_loop_have_few_tensors() -> None:
    numbers = {"rows": 21, "columns": 64, "function": "adamw_loop"}
    assert not is_reasonable(Layer(kind="optimizer", numbers=numbers, dtype="float32"))
    assert is_reasonable(Layer(kind="optimizer", numbers=numbers | {"function": "adamw"}, dtype="float32"))


def test_every_kind_has_a_maker_that_takes_its_numbers() -> None:
    takes = {kind: list(inspect.signature(make).parameters)[1:] for kind, make in MAKERS.items()}
    assert {kind: sorted(numbers) for kind, numbers in takes.items()} == {
        kind: sorted(drawn.numbers) for kind, drawn in KINDS.items()
    }


def test_every_function_that_is_drawn_is_there() -> None:
    assert tuple(elementwise.UNARY) == names.UNARY
    assert tuple(elementwise.BINARY) == names.BINARY
    assert tuple(elementwise.FILLS) == names.FILLS
    assert tuple(reductions.REDUCTIONS) == names.REDUCTIONS
    assert tuple(updates.OPTIMIZERS) == names.OPTIMIZERS


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_runs(kind: str) -> None:
    layers = list(sample_layers(2, seed=5, kinds=[kind], most_elements=1 << 14))
    for measured in measure_layers(layers, device="cpu"):
        assert (measured.measurement.status, measured.measurement.message) == (Status.OK, "")
        assert measured.measurement.family == f"layer:{kind}"
        assert all(row.calls % 3 == 0 for row in measured.kernels)  # nothing but the three runs
        assert measured.hosts


def test_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(NotFound, match="there is no layer warp"):
        build(Layer(kind="warp", numbers={}, dtype="float32"), "cpu")


# -- rows -----------------------------------------------------------------------------------------------------------------


def optimizer(function: str, tensors: int) -> Layer:
    numbers = {"rows": tensors, "columns": 256, "function": function}
    return Layer(kind="optimizer", numbers=numbers, dtype="float32")


@pytest.mark.parametrize("layer", [optimizer("adamw_loop", 20), optimizer("adamw", 300)], ids=["loop", "default"])
def test_a_layer_gives_tens_of_rows(layer: Layer) -> None:
    (measured,) = measure_layers([layer], device="cpu")
    assert 0 < len(measured.kernels) <= 60


def test_a_layer_that_cannot_run_is_a_result_and_the_next_one_runs() -> None:
    impossible = Layer(
        kind="transpose", numbers={"batch": -1, "rows": 2, "columns": 2, "order": "swap"}, dtype="float32"
    )
    good = Layer(kind="unary", numbers={"rows": 8, "function": "relu"}, dtype="float32")
    begun: list[str | None] = []
    failed, measured = measure_layers([impossible, good], device="cpu", begun=begun.append)
    assert failed.measurement.status is Status.FAILED
    assert failed.measurement.message.startswith("RuntimeError: ")
    assert (failed.kernels, failed.hosts) == ((), ())
    assert [row.operator.name for row in measured.kernels] == ["aten::relu", "aten::threshold_backward"]
    assert [row.phase for row in measured.kernels] == ["forward", "backward"]
    assert begun == [impossible.key, good.key, None]


def test_a_layer_that_allows_tf32_does_not_allow_it_to_others() -> None:
    import torch

    numbers = {"rows": 2, "depth": 2, "columns": 2, "bias": True, "tf32": True}
    list(measure_layers([Layer(kind="linear", numbers=numbers, dtype="float32")], device="cpu"))
    assert not torch.backends.cuda.matmul.allow_tf32

"""Sample networks: the base model, linear counts, formulas that agree with torch, and clear complaints."""

import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.benchmark.workloads import FAMILIES, Family, Number, Structure, Value, find_family
from tonnage.benchmark.workloads.family import MAX_PARAMETERS, TooManyParameters
from tonnage.errors import NotFound, UsageError

CONVOLUTIONAL = find_family("convolutional")
every_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)


def torch_count(family: Family, point: Structure) -> int:
    module = family.build(point, device="meta").module
    return sum(parameter.numel() for parameter in module.parameters())


# -- the base model and linear changes ------------------------------------------------------------------------------------


def test_the_base_model_flattens_the_image_into_one_output_layer() -> None:
    module = CONVOLUTIONAL.build({"convolutions": 0, "dense": 0, "input": "cifar10"}).module

    assert [type(part).__name__ for part in module.children()] == ["Flatten", "Linear"]
    assert CONVOLUTIONAL.parameter_count({"convolutions": 0, "dense": 0, "input": "cifar10"}) == 32 * 32 * 3 * 10 + 10


def equal(kind: str, size: int) -> dict[str, Value]:
    return {f"{kind}{position}": size for position in range(1, 6)}


WITH_ALL_LAYERS: Structure = {"convolutions": 5, "dense": 5}
# For each number that claims to be linear: when it does, and equally spaced values to check it with.
LINEAR: dict[tuple[str, str], list[tuple[Structure, tuple[int, ...]]]] = {
    **{("convolutional", name): [(WITH_ALL_LAYERS, (8, 260, 512))] for name in (*equal("conv", 0), *equal("dense", 0))},
    ("convolutional", "convolutions"): [
        (equal("conv", 8), (1, 2, 3, 4, 5)),
        (equal("conv", 512) | {"dense": 0}, (1, 2, 3, 4, 5)),
        (equal("conv", 48) | {"norm": "batch", "pooling": "max", "input": "16x16x3"}, (1, 2, 3, 4, 5)),
        (equal("conv", 64) | {"stem": 64}, (0, 1, 2, 3, 4, 5)),
    ],
    ("convolutional", "dense"): [
        (equal("dense", 8), (1, 2, 3, 4, 5)),
        (equal("dense", 512) | {"convolutions": 0}, (1, 2, 3, 4, 5)),
        (equal("dense", 128) | {"conv3": 128, "grid": 1}, (0, 1, 2, 3, 4, 5)),
    ],
    ("convolutional", "classes"): [({}, (2, 501, 1000)), ({"convolutions": 0, "dense": 0}, (2, 501, 1000))],
    ("convolutional", "stem"): [({}, (1, 250, 499)), ({"convolutions": 0, "norm": "batch"}, (8, 16, 24))],
    ("mlp", "depth"): [({}, (1, 2, 3, 4)), ({"width": 32, "inputs": 512}, (1, 32, 63))],
    ("mlp", "inputs"): [({}, (8, 32768, 65528))],
    ("mlp", "classes"): [({}, (2, 16385, 32768))],
    ("rnn", "layers"): [({"cell": cell}, (1, 2, 3, 4, 5, 6, 7, 8)) for cell in ("lstm", "gru", "rnn")],
    ("rnn", "inputs"): [({"layers": 3}, (8, 2052, 4096))],
    ("rnn", "classes"): [({}, (2, 16385, 32768))],
    ("transformer", "depth"): [({}, (0, 1, 2, 3)), ({"width": 64}, (0, 24, 48))],
    ("transformer", "sequence"): [({}, (8, 4100, 8192))],
    ("transformer", "vocabulary"): [({}, (256, 65664, 131072))],
    ("transformer", "feedforward"): [({}, (1, 2, 3, 4, 5, 6, 7, 8))],
    ("unet", "depth"): [({"growth": 1, "norm": norm}, (1, 2, 3, 4, 5)) for norm in ("none", "batch", "group")],
    ("unet", "classes"): [({}, (2, 129, 256))],
}
CASES = [(*names, fixed, values) for names, cases in LINEAR.items() for fixed, values in cases]


@pytest.mark.parametrize(("family", "name", "fixed", "values"), CASES, ids=lambda part: str(part)[:40])
def test_the_count_is_linear(family: str, name: str, fixed: Structure, values: tuple[int, ...]) -> None:
    found = find_family(family)
    points = [{**fixed, name: value} for value in values]
    by_formula = [found.parameter_count(point) for point in points]
    differences = {after - before for before, after in pairwise(by_formula)}

    assert len(differences) == 1
    assert [torch_count(found, point) for point in points] == by_formula


def test_every_claim_of_a_linear_count_is_checked() -> None:
    claims = {(family.name, n.name) for family in FAMILIES.values() for n in family.numbers if n.linear}
    assert claims == set(LINEAR)


# -- formulas -------------------------------------------------------------------------------------------------------------


def values_of(number: Number) -> st.SearchStrategy[Value]:
    if number.choices:
        return st.sampled_from(number.choices)
    steps = st.integers(number.low // number.multiple, number.high // number.multiple)
    return steps.map(lambda step: step * number.multiple)


def points_of(family: Family) -> st.SearchStrategy[dict[str, Value]]:
    return st.fixed_dictionaries({}, optional={number.name: values_of(number) for number in family.numbers})


@every_family
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_the_formula_agrees_with_torch(family: Family, data: st.DataObject) -> None:
    point = data.draw(points_of(family))
    try:
        by_formula = family.parameter_count(point)
    except TooManyParameters:
        return
    assert torch_count(family, point) == by_formula


@every_family
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_resolved_point_is_the_same_network(family: Family, data: st.DataObject) -> None:
    point = data.draw(points_of(family))
    try:
        resolved = family.resolve(point)
    except TooManyParameters:
        return
    assert family.resolve(resolved) == resolved
    assert family.layers(resolved) == family.layers(point)


@every_family
def test_a_network_takes_its_input_and_learns(family: Family) -> None:
    workload = family.build({})
    inputs, targets = workload.sample(2)
    loss = workload.loss(workload.module(inputs), targets)
    loss.backward()

    assert inputs.shape == (2, *family.input_shape({}))
    assert all(parameter.grad is not None for parameter in workload.module.parameters())


@every_family
def test_a_batch_is_the_same_every_time(family: Family) -> None:
    first, second = (family.build({}, device="meta").sample(3) for _ in range(2))
    assert all((one == other).all() for one, other in zip(first, second, strict=True))


def test_layers_describe_what_each_holds_and_multiplies() -> None:
    first, second, output = CONVOLUTIONAL.layers(
        {"convolutions": 2, "conv1": 16, "conv2": 8, "dense": 0, "pooling": "max", "grid": 2}
    )
    assert (first.kind, first.inputs, first.outputs, first.parameters) == ("convolution", 3, 16, 448)
    assert (first.multiply_adds, first.output_elements) == (32 * 32 * 9 * 3 * 16, 32 * 32 * 16)
    assert (second.multiply_adds, second.output_elements) == (16 * 16 * 9 * 16 * 8, 16 * 16 * 8)
    assert (output.kind, output.inputs, output.outputs, output.parameters) == ("dense", 32, 10, 330)


@pytest.mark.parametrize("name", ["convolutional", "unet"])
def test_the_layers_put_out_what_torch_puts_out(name: str) -> None:
    import torch

    family = find_family(name)
    workload = family.build({})
    sizes: list[int] = []
    for module in workload.module.modules():
        if isinstance(module, torch.nn.Conv2d | torch.nn.ConvTranspose2d | torch.nn.Linear | torch.nn.BatchNorm2d):
            module.register_forward_hook(lambda module, inputs, output: sizes.append(output.numel()))
    workload.module(workload.sample(1)[0])

    assert sizes == [layer.output_elements for layer in family.layers({})]


# -- one form for equal networks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"convolutions": 3, "conv4": 8}, {"convolutions": 3, "conv4": 512}),
        ({"dense": 0, "dense1": 8}, {"dense": 0}),
        ({"input": "cifar10"}, {"input": "32x32x3"}),
        ({"convolutions": 0, "grid": 1, "kernel": 7, "norm": "batch"}, {"convolutions": 0}),
        ({}, {"convolutions": 3}),
    ],
)
def test_equal_networks_resolve_to_the_same(one: Structure, other: Structure) -> None:
    assert CONVOLUTIONAL.resolve(one) == CONVOLUTIONAL.resolve(other)


def test_data_sets_have_their_shapes() -> None:
    shapes = [CONVOLUTIONAL.input_shape({"input": name}) for name in ("mnist", "cifar10", "dogs-vs-cats")]
    assert shapes == [(1, 28, 28), (3, 32, 32), (3, 150, 150)]


@every_family
def test_numbers_can_be_spread_and_have_allowed_defaults(family: Family) -> None:
    for number in family.numbers:
        assert number.check(number.default) == number.default
        assert number.choices or number.scale == "linear" or number.low >= 1


def test_every_width_can_be_shared_by_every_number_of_heads() -> None:
    transformer = find_family("transformer")
    heads = transformer.number("heads").choices
    assert all(transformer.number("width").multiple % int(head) == 0 for head in heads)


# -- complaints -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "point", "message", "hint"),
    [
        ("convolutional", {"conv1": 4}, "conv1 of convolutional must be a whole number from 8 to 512, not 4", ""),
        ("convolutional", {"conv1": True}, "conv1 of convolutional must be a whole number from 8 to 512, not True", ""),
        ("convolutional", {"conv1": "8"}, "conv1 of convolutional must be a whole number from 8 to 512, not '8'", ""),
        ("convolutional", {"kernel": 2}, "kernel of convolutional must be one of 1, 3, 5, 7, not 2", ""),
        ("convolutional", {"conv6": 8}, "convolutional has no number 'conv6'", "did you mean conv5?"),
        ("convolutional", {"zzz": 8}, "convolutional has no number 'zzz'", "it has: input, convolutions, conv1, "),
        ("rnn", {"cell": "lstn"}, "cell of rnn must be one of lstm, gru, rnn, not 'lstn'", "did you mean lstm?"),
        ("transformer", {"width": 100}, "from 16 to 8192 in steps of 16, not 100", ""),
        ("transformer", {"width": 8192, "depth": 48}, f"parameters, more than {MAX_PARAMETERS:,}", ""),
    ],
)
def test_a_wrong_number_is_named_with_what_is_allowed(family: str, point: Structure, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_family(family).resolve(point)
    assert message in caught.value.message
    assert caught.value.hint.startswith(hint)


def test_an_unknown_family_is_answered_with_the_nearest() -> None:
    with pytest.raises(NotFound) as caught:
        find_family("transformers")
    assert caught.value.message == "unknown family 'transformers'"
    assert caught.value.hint.startswith("did you mean transformer? families are convolutional, mlp")


def test_nothing_but_building_needs_torch() -> None:
    code = (
        "import sys; from tonnage.benchmark.workloads import FAMILIES, make_point\n"
        "from tonnage.benchmark.campaign_file import find_campaign\n"
        "find_campaign('quick'); [make_point(name, {}).key for name in FAMILIES]\n"
        "print('torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"

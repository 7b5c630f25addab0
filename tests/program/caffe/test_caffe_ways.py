"""Faster ways to run a network: they are taken only if they are right, and what they change leaves results as they are."""

from pathlib import Path

import numpy as np
import pytest
from caffe_files import input_text, layer_text, made_model, random_inputs

torch = pytest.importorskip("torch")
from tonnage.errors import UsageError  # noqa: E402
from tonnage.program.caffe import Model  # noqa: E402
from tonnage.program.caffe.execution import CaffeModule  # noqa: E402
from tonnage.program.caffe.folding import folded_network, folded_weights  # noqa: E402
from tonnage.program.caffe.front import front_of, is_by_rows, why_no_batches  # noqa: E402
from tonnage.program.caffe.layers.windows import Convolution  # noqa: E402
from tonnage.program.caffe.processor import by_onnxruntime  # noqa: E402
from tonnage.program.caffe.shapes.windows import Window  # noqa: E402
from tonnage.program.caffe.ways import LAYERS, ONNX, PARTS, Ways, fastest  # noqa: E402
from tonnage.program.caffe.winograd import Winograd, suits  # noqa: E402


def normed(blob: str, more: str = "") -> str:
    made = layer_text("BatchNorm", "", blob, blob, name=f"{blob}/norm")
    return made + layer_text("Scale", f"scale_param {{ bias_term: true {more} }}", blob, blob, name=f"{blob}/scale")


def convolved(kind: str, settings: str, bottom: str, top: str) -> str:
    return layer_text(kind, f"convolution_param {{ num_output: 6 kernel_size: 3 {settings} }}", bottom, top)


TEXT = (
    input_text(2, 4, 9, 11)
    + convolved("Convolution", "bias_term: false", "data", "a")
    + normed("a")
    + layer_text("ReLU", "", "a", "b")
    + normed("b")
    + layer_text("Bias", "", "b", "b", name="b/bias")
    + convolved("Deconvolution", "group: 2 stride: 2", "b", "c")
    + normed("c")
    + layer_text("InnerProduct", "inner_product_param { num_output: 5 }", "c", "d")
    + normed("d")
    + layer_text("InnerProduct", "inner_product_param { num_output: 3 transpose: true }", "d", "e")
    + normed("e")
)


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return made_model(tmp_path, TEXT)


def tensors(model: Model) -> list[torch.Tensor]:
    return [torch.from_numpy(each) for each in random_inputs(model).values()]


def test_normalisations_are_folded_without_changing_results(model: Model) -> None:
    network, weights = folded_network(model.network), folded_weights(model.network, model.weights or {})
    with torch.inference_mode():
        (found,) = CaffeModule(network, weights)(*tensors(model))

    assert [layer.type for layer in network.layers] == [
        "Convolution", "ReLU", "Affine", "Deconvolution", "InnerProduct", "InnerProduct",
    ]  # fmt: skip
    np.testing.assert_allclose(found.numpy(), model.run(random_inputs(model))["e"], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("free_batch", [False, True])
def test_onnxruntime_runs_folded_networks(model: Model, free_batch: bool) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    network, weights = folded_network(model.network), folded_weights(model.network, model.weights or {})
    run = by_onnxruntime(network, weights, free_batch=free_batch)
    rows = torch.cat([*tensors(model), *tensors(model)]) if free_batch else tensors(model)[0]

    wanted = model.run({"data": rows.numpy()})["e"]
    np.testing.assert_allclose(run(rows)[0].numpy(), wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("pad", "height", "width", "slope"), [(0, 9, 14, None), (1, 13, 8, 0.0), (2, 3, 5, 0.3)])
def test_a_convolution_by_winograds_method_is_the_same(pad: int, height: int, width: int, slope: float | None) -> None:
    random = torch.Generator().manual_seed(0)
    window = Window(kernel=(3, 3), stride=(1, 1), pad=(pad, pad), dilation=(1, 1))
    weight, bias = torch.randn(20, 16, 3, 3, generator=random), torch.randn(20, generator=random)
    convolution = Convolution(weight, bias, window, 1)
    convolution.slope = slope
    image = torch.randn(2, 16, height, width, generator=random)

    assert suits(convolution)
    with torch.inference_mode():
        np.testing.assert_allclose(Winograd(convolution)(image).numpy(), convolution(image).numpy(), atol=2e-4)


def test_a_way_that_is_wrong_or_impossible_is_not_taken() -> None:
    def impossible() -> None:
        raise UsageError("not here")

    ways = {"right": lambda: lambda x: (x + 1,), "wrong": lambda: lambda x: (x + 1.1,), "none": impossible}

    assert fastest(ways, (torch.ones(3),))[0] == "right"


def test_what_depends_on_values_is_left_to_the_layers(tmp_path: Path) -> None:
    shapes = {"a": (1, 400), "b": (1, 300), "c": (1, 2, 400)}
    text = "".join(input_text(*shape, name=name) for name, shape in shapes.items())
    text += layer_text("Power", "power_param { scale: 0.5 }", "a", "half") + layer_text("Softmax", "", "b", "likely")
    settings = "detection_output_param { num_classes: 3 keep_top_k: 20 }"
    model = made_model(tmp_path, text + layer_text("DetectionOutput", settings, "half likely c", "found"))
    inputs = random_inputs(model)
    with torch.inference_mode():
        (found,) = model.module()(*(torch.from_numpy(each) for each in inputs.values()))

    assert [layer.type for layer in front_of(model.network).layers] == ["Power", "Softmax"]
    np.testing.assert_allclose(found.numpy(), model.run(inputs)["found"], atol=1e-5)


def test_a_batch_is_known_by_what_it_does_to_outputs(tmp_path: Path, model: Model) -> None:
    assert (why_no_batches(model.network), is_by_rows(model.network)) == ("", True)
    mixed = made_model(
        tmp_path, input_text(2, 6) + layer_text("Reshape", "reshape_param { shape { dim: 3 dim: -1 } }", tops="rows")
    )
    assert why_no_batches(mixed.network) == "the first axis of the output rows is not the batch"
    fixed = made_model(
        tmp_path, input_text(2, 6) + layer_text("Reshape", "reshape_param { shape { dim: 2 dim: 6 } }", tops="rows")
    )
    assert why_no_batches(fixed.network).startswith("it takes only batches of 2: ")


def test_batches_run_in_parts_that_are_prepared(tmp_path: Path) -> None:
    model = made_model(tmp_path, TEXT.replace(input_text(2, 4, 9, 11), input_text(1, 4, 9, 11)))
    ways = Ways(model.network, model.weights or {})
    ways.prepare(((1, 4, 9, 11),), (LAYERS,))
    ways.prepare(((2, 4, 9, 11),), (PARTS,))
    rows = torch.rand(5, 4, 9, 11)
    run = ways.find(((5, 4, 9, 11),))

    assert run is not None
    np.testing.assert_allclose(run(rows)[0].numpy(), model.run({"data": rows.numpy()})["e"], atol=1e-4, rtol=1e-4)
    assert ways.find(((5, 4, 9, 12),)) is None


def test_a_size_that_comes_often_is_prepared_beside_the_work(tmp_path: Path) -> None:
    text = input_text(1, 4, 9, 11) + convolved("Convolution", "", "data", "out")
    model = made_model(tmp_path, text)
    module = model.module()
    image = torch.rand(1, 4, 13, 17)
    with torch.inference_mode():
        found = [module(image)[0] for _ in range(3)]
    ways = module.fast
    assert isinstance(ways, Ways)
    ways.wait()

    assert ways.chosen[((1, 4, 13, 17),)] in (LAYERS, ONNX)
    with torch.inference_mode():
        np.testing.assert_allclose(module(image)[0].numpy(), found[0].numpy(), atol=1e-5)

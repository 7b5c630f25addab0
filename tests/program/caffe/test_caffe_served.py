"""Caffe models as instances of the server run them: batches, open sizes, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
from caffe_files import caffemodel, input_text, layer_text, random_weights

pytest.importorskip("torch")
from tonnage.errors import InvalidFile, UsageError
from tonnage.program.caffe import load
from tonnage.serve.configuration import ModelConfiguration, TensorSpec
from tonnage.serve.deriving import completed
from tonnage.serve.runtimes import LoadOrder, Runtime, load_runtime

CONVOLUTION = layer_text("Convolution", "convolution_param { num_output: 6 kernel_size: 3 }", tops="conv")
IMAGES = (
    input_text(4, 3, 12, 10)
    + CONVOLUTION
    + layer_text("BatchNorm", "", "conv", "conv", name="norm")
    + layer_text("ReLU", "", "conv", "conv", name="relu")
    + layer_text("Pooling", "pooling_param { kernel_size: 3 stride: 2 }", "conv", "pool")
)
CLASSES = IMAGES + layer_text("InnerProduct", "inner_product_param { num_output: 5 }", "pool", "classes")
BOXES = "".join(
    input_text(*shape, name=name) for name, shape in {"a": (1, 400), "b": (1, 300), "c": (1, 2, 400)}.items()
) + layer_text("DetectionOutput", "detection_output_param { num_classes: 3 keep_top_k: 20 }", "a b c", "boxes")

NO_WEIGHTS = {"boxes": [np.zeros(1, np.float32)]}  # a file must have some


def written(folder: Path, text: str) -> Path:
    prototxt = folder / "model.prototxt"
    prototxt.write_text(text)
    prototxt.with_suffix(".caffemodel").write_bytes(caffemodel(random_weights(load(prototxt).network) or NO_WEIGHTS))
    return prototxt


def served(
    folder: Path, text: str, *, batch: int = 0, dims: tuple[int, ...] | None = None
) -> tuple[ModelConfiguration, Runtime]:
    inputs = () if dims is None else (TensorSpec(name="data", datatype="FP32", dims=dims),)
    settings = ModelConfiguration(name="net", max_batch_size=batch, inputs=inputs)
    runtime = load_runtime(LoadOrder(backend="caffe", path=str(written(folder, text)), configuration=settings))
    return completed(settings, runtime), runtime


def images(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(0, 1, shape).astype(np.float32)


def test_shapes_are_those_of_the_prototxt(tmp_path: Path) -> None:
    settings, runtime = served(tmp_path, CLASSES)

    assert [(spec.name, spec.dims) for spec in settings.inputs] == [("data", (4, 3, 12, 10))]
    assert [(spec.name, spec.dims) for spec in settings.outputs] == [("classes", (4, 5))]
    assert runtime.run({"data": images(4, 3, 12, 10)}, ())["classes"].shape == (4, 5)


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 7])
def test_a_batch_of_any_size_gives_what_its_rows_give(tmp_path: Path, rows: int) -> None:
    settings, runtime = served(tmp_path, CLASSES, batch=7)
    given = images(rows, 3, 12, 10)

    together = runtime.run({"data": given}, ())["classes"]
    apart = [runtime.run({"data": row[None]}, ())["classes"] for row in given]
    assert (settings.inputs[0].dims, settings.outputs[0].dims) == ((3, 12, 10), (5,))
    np.testing.assert_allclose(together, np.concatenate(apart), atol=1e-5)


def test_a_client_may_send_sizes_that_the_configuration_leaves_open(tmp_path: Path) -> None:
    settings, runtime = served(tmp_path, IMAGES, dims=(1, 3, -1, -1))
    model = load(tmp_path / "model.prototxt", tmp_path / "model.caffemodel", shapes={"data": (1, 3, 21, 30)})
    given = images(1, 3, 21, 30)

    assert [spec.dims for spec in settings.outputs] == [(1, 6, -1, -1)]
    for _ in range(5):  # the later ones come when this size is being prepared, or is
        found = runtime.run({"data": given}, ())["pool"]
        np.testing.assert_allclose(found, model.run({"data": given})["pool"], atol=1e-5)


def test_open_sizes_and_batches_go_together(tmp_path: Path) -> None:
    settings, runtime = served(tmp_path, IMAGES, batch=4, dims=(3, -1, 10))

    assert runtime.run({"data": images(3, 3, 40, 10)}, ())["pool"].shape[0] == 3
    assert settings.outputs[0].dims == (6, -1, 4)


def test_sizes_of_the_configuration_count(tmp_path: Path) -> None:
    settings, _ = served(tmp_path, IMAGES, dims=(1, 3, 32, 32))

    assert settings.outputs[0].dims == (1, 6, 15, 15)


def test_a_size_that_goes_through_no_product_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match=r"input data is 4x3x12x10 and cannot vary along axis 2: .* layer classes"):
        served(tmp_path, CLASSES, dims=(4, 3, -1, 10))


def test_a_size_that_the_network_cannot_take_is_the_clients_mistake(tmp_path: Path) -> None:
    _, runtime = served(tmp_path, IMAGES, dims=(1, 3, -1, -1))

    with pytest.raises(UsageError, match="layer conv"):
        runtime.run({"data": images(1, 3, 2, 2)}, ())


def test_detections_are_of_any_number_and_not_in_batches(tmp_path: Path) -> None:
    settings, runtime = served(tmp_path, BOXES)
    shapes = {"a": (1, 400), "b": (1, 300), "c": (1, 2, 400)}

    assert settings.outputs[0].dims == (1, 1, -1, 7)
    assert runtime.run({name: images(*shape) for name, shape in shapes.items()}, ())["boxes"].shape[3] == 7
    with pytest.raises(InvalidFile, match="cannot run in batches: the output boxes has as many rows as are found"):
        served(tmp_path, BOXES, batch=4)


def test_missing_weights_are_told(tmp_path: Path) -> None:
    prototxt = written(tmp_path, IMAGES)
    prototxt.with_suffix(".caffemodel").unlink()

    with pytest.raises(InvalidFile, match=r"has no model\.caffemodel"):
        load_runtime(LoadOrder(backend="caffe", path=str(prototxt), configuration=ModelConfiguration(name="net")))

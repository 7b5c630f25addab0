"""Caffe models as programs: what is captured, estimated and split."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from caffe_files import caffemodel, input_text, layer_text, random_weights

from tonnage.api import estimate
from tonnage.errors import InvalidFile, NotFound, UsageError
from tonnage.program.caffe import load
from tonnage.program.capture import CaptureOptions, capture
from tonnage.program.digest import program_digest
from tonnage.program.program import parse_program

pytest.importorskip("torch")
TEXT = input_text(2, 3, 16, 16) + layer_text(
    "Convolution", "convolution_param { num_output: 8 kernel_size: 3 }", tops="conv"
)
TEXT += layer_text("BatchNorm", "", "conv", "conv", name="bn") + layer_text("ReLU", "", "conv", "conv", name="relu")
TEXT += layer_text("Pooling", "pooling_param { kernel_size: 2 stride: 2 }", "conv", "pool")
TEXT += layer_text("InnerProduct", "inner_product_param { num_output: 10 }", "pool", "ip")


@pytest.fixture
def prototxt(tmp_path: Path) -> Path:
    path = tmp_path / "net.prototxt"
    path.write_text(TEXT)
    return path


def written(prototxt: Path, name: str = "net.caffemodel") -> Path:
    path = prototxt.with_name(name)
    path.write_bytes(caffemodel(random_weights(load(prototxt).network)))
    return path


def test_a_prototxt_is_captured_with_its_layers_as_modules(prototxt: Path) -> None:
    trace = capture(parse_program(str(prototxt)))

    assert (trace.origin.kind, trace.origin.mode, trace.origin.batch) == ("caffe", "inference", 2)
    assert {"conv", "pool", "ip"} <= set(trace.modules)
    assert "bn" not in trace.modules
    assert trace.origin.parameter_count == 8 * 27 + 8 + 10 * 8 * 49 + 10


def test_a_batch_is_estimated_and_weights_beside_are_compared(prototxt: Path) -> None:
    report = estimate(prototxt, gpus=["L4"], batches=[64])

    assert report.sweep[0].batch == 64
    prototxt.with_suffix(".caffemodel").write_bytes(caffemodel({"conv": [np.zeros((8, 3, 5, 5)), np.zeros(8)]}))
    with pytest.raises(InvalidFile, match="has weights of 8x3x3x3, but of 8x3x5x5"):
        estimate(prototxt, gpus=["L4"])


def test_sizes_that_a_file_leaves_open_are_given(tmp_path: Path) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text(
        'layer { name: "d" type: "Data" top: "data" data_param { batch_size: 3 } }'
        + TEXT[len(input_text(2, 3, 16, 16)) :]
    )

    with pytest.raises(UsageError, match="the size of input data is not known"):
        capture(parse_program(str(path)))
    sizes = {"data.1": 3, "data.2": 16, "data.3": 16}
    assert capture(parse_program(str(path)), CaptureOptions(sizes=sizes)).origin.batch == 3


def test_a_detector_is_captured_with_as_many_boxes_as_there_can_be(tmp_path: Path) -> None:
    path = tmp_path / "net.prototxt"
    shapes = {"a": (1, 400), "b": (1, 300), "c": (1, 2, 400)}
    text = "".join(input_text(*shape, name=name) for name, shape in shapes.items())
    settings = "detection_output_param { num_classes: 3 keep_top_k: 20 nms_param { top_k: 50 } }"
    path.write_text(text + layer_text("DetectionOutput", settings, "a b c"))

    assert capture(parse_program(str(path))).origin.kind == "caffe"


def test_files_are_found_by_either_name(prototxt: Path) -> None:
    weights = written(prototxt)
    other = written(prototxt, "other.caffemodel")

    assert parse_program(str(weights)).target == str(prototxt)
    assert parse_program(str(prototxt), (str(other),)).arguments == (str(other),)
    with pytest.raises(UsageError, match="holds weights; the network is in a prototxt"):
        parse_program(str(other))
    with pytest.raises(UsageError, match="takes a caffemodel as its only argument"):
        parse_program(str(prototxt), ("--lr", "3"))
    with pytest.raises(NotFound):
        parse_program(str(prototxt), ("none.caffemodel",))
    assert program_digest(parse_program(str(prototxt))).startswith("sha256:")


def test_a_network_is_exported_as_a_graph_for_splitting(prototxt: Path) -> None:
    import torch

    from tonnage.program.exported import export_program

    written(prototxt)
    program = parse_program(str(prototxt))
    exported = export_program(program, batch=4)
    model = load(prototxt, prototxt.with_suffix(".caffemodel"), batch=4)
    image = torch.randn(model.inputs["data"])

    (found,) = exported.module(image)
    np.testing.assert_allclose(found.numpy(), model.run({"data": image.numpy()})["ip"], atol=1e-4)
    with pytest.raises(UsageError, match="can only be run, not trained"):
        export_program(program, training=True)


def test_a_layer_that_makes_any_number_of_rows_is_not_split(tmp_path: Path) -> None:
    from tonnage.program.exported import export_program

    path = tmp_path / "net.prototxt"
    shapes = {"a": (1, 400), "b": (1, 300), "c": (1, 2, 400)}
    text = "".join(input_text(*shape, name=name) for name, shape in shapes.items())
    path.write_text(text + layer_text("DetectionOutput", "detection_output_param { num_classes: 3 }", "a b c", "boxes"))

    with pytest.raises(InvalidFile, match=r"layer boxes \(DetectionOutput\) makes as many rows as it finds"):
        export_program(parse_program(str(path)))


@pytest.mark.slow
def test_a_network_that_is_split_and_run_is_equal_to_the_whole(prototxt: Path) -> None:
    written(prototxt)
    cluster = Path(__file__).resolve().parents[3] / "examples" / "nodes.yaml"
    words = ["split", prototxt, "--cluster", cluster, "--run", "--emulate", "--samples", "4", "--json"]
    result = subprocess.run(
        [sys.executable, "-m", "tonnage", *map(str, words)], capture_output=True, text=True, check=False, timeout=200
    )

    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["run"]["report"]["is_equal"] is True

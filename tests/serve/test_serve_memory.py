"""What a model needs, and what there is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper
from repository_models import Scaled, graph, save_exported, save_scripted, save_sum, value

from tonnage.serve.configuration import InstanceGroup, ModelConfiguration, TensorSpec
from tonnage.serve.instance_process import InstancePlace
from tonnage.serve.main_memory import free_main_bytes
from tonnage.serve.memory_limits import MemoryLimits, ask_apart
from tonnage.serve.memory_needs import Needs, Question, needs_of, weights_on_disk

MIB = 1 << 20


def needs(path: Path, backend: str = "onnxruntime", gpu: str = "", **settings: object) -> Needs:
    configuration = ModelConfiguration(name="m", backend=backend, **settings)  # type: ignore[arg-type]
    return needs_of(Question(path=str(path), configuration=configuration, gpu=gpu))


def wide(file: Path, columns: int = 1 << 18) -> Path:
    """A mebibyte of weights, and a mebibyte for each row that goes in and for each that comes out."""
    nodes = [helper.make_node("Mul", ["x", "w"], ["y"])]
    tensors = [value("x", ["n", columns])], [value("y", ["n", columns])]
    onnx.save(graph(nodes, *tensors, {"w": np.ones(columns, np.float32)}), file)
    return file


def test_weights_and_tensors_of_the_largest_batch_are_counted(tmp_path: Path) -> None:
    path = wide(tmp_path / "model.onnx")
    small, large = needs(path, max_batch_size=1), needs(path, max_batch_size=101)
    assert (small.rows, large.rows) == (1, 101)
    assert small.weights_bytes == MIB
    assert large.total_bytes - small.total_bytes == 100 * 4 * MIB  # twice two rows: onnxruntime's share


def test_a_batch_that_the_file_leaves_open_counts_as_the_default(tmp_path: Path) -> None:
    assert needs(wide(tmp_path / "model.onnx")).rows == 32


def test_on_a_gpu_the_context_counts(tmp_path: Path) -> None:
    path = wide(tmp_path / "model.onnx")
    found = needs(path, gpu="H200", max_batch_size=1)
    assert 400 * MIB < found.total_bytes < 2000 * MIB
    assert needs(path, gpu="H200", max_batch_size=1000).total_bytes - found.total_bytes > 1900 * MIB


def test_sizes_of_the_configuration_stand_for_open_ones(tmp_path: Path) -> None:
    nodes = [helper.make_node("Neg", ["x"], ["y"])]
    onnx.save(graph(nodes, [value("x", ["n", "length"])], [value("y", ["n", "length"])]), tmp_path / "model.onnx")
    fixed = (TensorSpec(name="x", datatype="FP32", dims=(1 << 18,)),)
    open_size = needs(tmp_path / "model.onnx", max_batch_size=10)
    assert (
        needs(tmp_path / "model.onnx", max_batch_size=10, inputs=fixed).total_bytes - open_size.total_bytes > 38 * MIB
    )


def test_exported_models_are_followed(tmp_path: Path) -> None:
    rows = torch.export.Dim("rows")
    file = tmp_path / "model.pt2"
    columns = 1 << 18
    example = (torch.zeros(2, columns), torch.zeros(2, columns))
    save_exported(file, Scaled(), example, {"x": {0: rows}, "offset": {0: rows}})
    one, many = (needs(file, "pytorch", max_batch_size=count) for count in (1, 11))
    assert many.rows == 11
    assert 45 * MIB <= many.total_bytes - one.total_bytes <= 60 * MIB


def test_of_what_cannot_be_followed_only_the_weights_are_known(tmp_path: Path) -> None:
    save_scripted(tmp_path / "model.pt", Scaled())
    (tmp_path / "model.onnx").write_bytes(b"x" * 1000)
    for name, backend in (("model.pt", "pytorch"), ("model.onnx", "onnxruntime")):
        found = needs(tmp_path / name, backend)
        assert found.rows == 0
        assert found.problem
        assert found.weights_bytes == weights_on_disk(tmp_path / name)


NETWORK = """
name: "two layers"
input: "data" input_dim: 1 input_dim: 1024 input_dim: 16 input_dim: 16
layer { name: "p" type: "ReLU" bottom: "data" top: "p" }
layer { name: "fc" type: "InnerProduct" bottom: "p" top: "y" inner_product_param { num_output: 4 } }
"""


def test_blobs_and_weights_of_a_caffe_model_are_counted(tmp_path: Path) -> None:
    (tmp_path / "model.prototxt").write_text(NETWORK)
    one, many = (needs(tmp_path / "model.prototxt", "caffe", max_batch_size=count) for count in (1, 11))
    assert one.problem == ""
    assert one.weights_bytes == 4 * (MIB + 4)
    assert many.total_bytes - one.total_bytes == 10 * (2 * MIB + 16)  # data, p and y


def test_the_weights_of_a_caffe_model_are_beside_it(tmp_path: Path) -> None:
    (tmp_path / "model.prototxt").write_bytes(b"x" * 10)
    (tmp_path / "model.caffemodel").write_bytes(b"x" * 1000)
    assert weights_on_disk(tmp_path / "model.prototxt") == 1010


@pytest.mark.slow
def test_the_estimate_is_made_in_a_process_of_its_own(tmp_path: Path) -> None:
    save_sum(tmp_path / "model.onnx")
    question = Question(
        path=str(tmp_path / "model.onnx"), configuration=ModelConfiguration(name="m", backend="onnxruntime")
    )
    assert asyncio.run(ask_apart(question)) == needs_of(question)


def test_the_same_model_is_estimated_once(tmp_path: Path) -> None:
    save_sum(tmp_path / "model.onnx")
    asked = []

    async def ask(question: Question) -> Needs:
        asked.append(question)
        return Needs(total_bytes=1, weights_bytes=1)

    async def check() -> None:
        limits = MemoryLimits(ask=ask, free_main=lambda: MIB)
        for count in (1, 2, 2):
            configuration = ModelConfiguration(name="m", max_batch_size=count, groups=(InstanceGroup(count=2),))
            await limits.claim(configuration, tmp_path / "model.onnx", [InstancePlace(), InstancePlace()])
        assert len(asked) == 2
        assert [claim.bytes for claim in limits.claims] == [{None: 2}] * 3

    asyncio.run(check())


# -- what there is --------------------------------------------------------------------------------------------------------


def test_a_container_with_less_than_the_machine_decides(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("3000\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 700\n")
    assert free_main_bytes(tmp_path) == 2700


def test_an_old_container_is_asked_as_well(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("5000\n")
    (tmp_path / "memory" / "memory.usage_in_bytes").write_text("6000\n")
    (tmp_path / "memory" / "memory.stat").write_text("total_inactive_file 100\n")
    assert free_main_bytes(tmp_path) == 0


def test_without_a_limit_the_machine_decides(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("max\n")
    assert free_main_bytes(tmp_path) > MIB

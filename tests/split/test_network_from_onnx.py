"""ONNX files become networks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from tonnage.benchmark.time_models import shipped_model  # noqa: E402
from tonnage.errors import InvalidFile, UsageError  # noqa: E402
from tonnage.estimate.graph_costs import Processor  # noqa: E402
from tonnage.estimate.step import last_step  # noqa: E402
from tonnage.estimate.step_time import time_step  # noqa: E402
from tonnage.hardware import find_gpu  # noqa: E402
from tonnage.program.onnx_model import trace_onnx  # noqa: E402
from tonnage.split.network import Input, Network  # noqa: E402
from tonnage.split.sources.onnx_network import network_from_onnx  # noqa: E402

H200 = find_gpu("H200")


def written(folder: Path, *nodes: onnx.NodeProto, output: str) -> Path:
    """A model of these nodes on an input `x` of 32 columns and an open batch, with a square weight `w`."""
    graph = helper.make_graph(
        list(nodes),
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 32])],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.zeros((32, 32), np.float32), "w")],
    )
    path = folder / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)
    return path


def opened(path: Path, batch: int | None = 64) -> Network:
    return network_from_onnx(path, [H200], shipped_model(), processor=Processor(), batch=batch)


def node(kind: str, inputs: str, outputs: str, **attributes: int) -> onnx.NodeProto:
    return helper.make_node(kind, inputs.split(), outputs.split(), **attributes)


def test_each_node_is_an_operation_under_the_name_of_its_value(tmp_path: Path) -> None:
    network = opened(written(tmp_path, node("MatMul", "x w", "a"), node("Relu", "a", "b"), output="b"))

    product, relu = network.operations
    assert (network.name, product.id, product.kind, relu.id) == ("net", "a", "MatMul", "b")
    assert product.seconds.keys() == {"H200", "cpu"}
    assert product.output_bytes == relu.output_bytes == 64 * 32 * 4
    assert network.edges == ((0, 1),)


def test_a_weight_that_two_nodes_read_is_named_by_both(tmp_path: Path) -> None:
    network = opened(written(tmp_path, node("MatMul", "x w", "a"), node("MatMul", "a w", "b"), output="b"))

    assert [operation.weights for operation in network.operations] == [("w",), ("w",)]
    assert network.weight_bytes == {"w": 4096}


def test_each_of_several_values_of_a_node_is_sent_by_itself(tmp_path: Path) -> None:
    split = node("Split", "x", "a b", axis=1, num_outputs=2)

    network = opened(written(tmp_path, split, node("Relu", "b", "c"), node("Add", "a c", "d"), output="d"))

    ids = [operation.id for operation in network.operations]
    assert ids == ["a", "b", "c", "d"]
    assert network.operations[0].together == network.operations[1].together == "a"
    assert network.operations[1].output_bytes == 64 * 16 * 4
    assert {(ids[first], ids[second]) for first, second in network.edges} == {
        ("a", "b"), ("b", "c"), ("a", "d"), ("c", "d"),
    }  # fmt: skip


def test_inputs_and_outputs_are_those_of_the_model(tmp_path: Path) -> None:
    product, relu = node("MatMul", "x w", "a"), node("Relu", "x", "b")
    network = opened(written(tmp_path, product, relu, node("Add", "a b", "c"), node("Neg", "b", "d"), output="c"))

    assert network.inputs == (Input(name="x", nbytes=64 * 32 * 4, readers=(0, 1)),)
    assert [network.operations[position].id for position in network.outputs] == ["c"]  # nothing reads d either


def test_seconds_of_the_operations_add_up_to_the_estimate_but_for_the_copies(tmp_path: Path) -> None:
    path = written(tmp_path, node("MatMul", "x w", "a"), node("Relu", "a", "b"), output="b")
    batch = 1 << 22  # so that nothing waits for the host

    network = opened(path, batch)

    whole = time_step(last_step(trace_onnx(path, batch=batch)), H200, shipped_model())
    seconds = sum(operation.seconds["H200"] for operation in network.operations)
    assert seconds == pytest.approx(whole.busy_seconds - whole.h2d_seconds - whole.d2h_seconds, rel=0.01)


def test_an_open_batch_must_be_chosen(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"net\.onnx leaves the size of batch open"):
        opened(written(tmp_path, node("Relu", "x", "a"), output="a"), batch=None)


def test_a_file_that_computes_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="computes nothing from its inputs"):
        opened(written(tmp_path, output="x"))

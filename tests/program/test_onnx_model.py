"""ONNX files as Traces: peaks by hand, what shares memory, and every way in which a file can be wrong."""

import importlib.util
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from tonnage.errors import CaptureError, InvalidFile, MissingDependency, NotFound, UsageError  # noqa: E402
from tonnage.estimate.workspace import temporaries  # noqa: E402
from tonnage.hardware.catalogue import find_gpu  # noqa: E402
from tonnage.program.onnx_model import trace_onnx  # noqa: E402
from tonnage.program.trace import D2H, H2D, Category, Event, Operator, Phase, TensorSpec, Trace  # noqa: E402
from tonnage.program.trace_file import dump_trace, load_trace  # noqa: E402

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def info(name: str, shape: Any, kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def weight(name: str, *shape: int, dtype: Any = np.float32) -> Any:
    return numpy_helper.from_array(np.ones(shape, dtype=dtype), name)


def integers(name: str, *values: int) -> Any:
    return numpy_helper.from_array(np.array(values, dtype=np.int64), name)


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(), outputs.split(), name=f"/net/{op}", **attributes)


def model(nodes: Any, inputs: Any, outputs: Any, weights: Any = (), opset: int = 18, **more: Any) -> Any:
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(weights), **more)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("custom", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def save(folder: Path, proto: Any) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def trace(folder: Path, proto: Any, **options: Any) -> Trace:
    return trace_onnx(save(folder, proto), **options)


def curve(found: Trace) -> list[int]:
    """Bytes in use after each event."""
    sign = {Event.ALLOCATE: 1, Event.FREE: -1}
    events = zip(found.event_kind.tolist(), found.event_subject.tolist(), strict=True)
    changes = [
        sign.get(Event(kind), 0) * int(found.block_bytes[subject] if kind < 2 else 0) for kind, subject in events
    ]
    return np.cumsum(changes).tolist()


def calls(found: Trace) -> list[Operator]:
    """The operators of the first run."""
    end = found.event_kind.tolist().index(Event.STEP)
    called = found.event_subject[:end][found.event_kind[:end] == Event.CALL]
    return [found.operators[found.call_operator[call]] for call in called if found.call_phase[call] != Phase.SETUP]


def names(found: Trace) -> list[str]:
    return [operator.name for operator in calls(found)]


def bytes_of(found: Trace, category: Category) -> list[int]:
    return found.block_bytes[found.block_category == category].tolist()


def conv_net(**options: Any) -> Any:
    nodes = [
        node("Conv", "x w b", "c", pads=[1, 1, 1, 1], strides=[2, 2], **options),
        node("Relu", "c", "r"),
        node("GlobalAveragePool", "r", "p"),
        node("Flatten", "p", "f"),
        node("Gemm", "f v u", "y", transB=1),
    ]
    weights = [weight("w", 16, 3, 3, 3), weight("b", 16), weight("v", 10, 16), weight("u", 10)]
    return model(nodes, [info("x", ["batch", 3, 32, 32])], [info("y", ["batch", 10])], weights)


def mlp() -> Any:
    nodes = [node("Gemm", "x w b", "h"), node("Relu", "h", "a"), node("Gemm", "a v", "y", transB=1)]
    weights = [weight("w", 100, 200), weight("b", 200), weight("v", 10, 200)]
    return model(nodes, [info("x", [None, 100])], [info("y", [None, 10])], weights)


def block() -> Any:
    """Attention with four heads of 8, as exporters write it: shapes are computed inside the graph."""
    nodes = [
        node("LayerNormalization", "x g h", "n"),
        node("MatMul", "n wq", "q0"), node("MatMul", "n wk", "k0"),
        node("Shape", "x", "s"), node("Gather", "s zero", "s0"), node("Gather", "s one", "s1"),
        node("Unsqueeze", "s0 axis", "u0"), node("Unsqueeze", "s1 axis", "u1"),
        node("Concat", "u0 u1 rest", "to", axis=0),
        node("Reshape", "q0 to", "q1"), node("Reshape", "k0 to", "k1"),
        node("Transpose", "q1", "q", perm=[0, 2, 1, 3]), node("Transpose", "k1", "k", perm=[0, 2, 3, 1]),
        node("MatMul", "q k", "scores"), node("Softmax", "scores", "y", axis=-1),
    ]  # fmt: skip
    weights = [
        weight("g", 32), weight("h", 32), weight("wq", 32, 32), weight("wk", 32, 32),
        numpy_helper.from_array(np.int64(0), "zero"), numpy_helper.from_array(np.int64(1), "one"),
        integers("axis", 0), integers("rest", 4, 8),
    ]  # fmt: skip
    return model(nodes, [info("x", ["batch", "sequence", 32])], [info("y", None)], weights)


# -- peaks -------------------------------------------------------------------------------------------------------------


def test_the_peak_of_a_convolutional_network_is_weights_input_and_the_two_largest_neighbours(tmp_path: Path) -> None:
    found = trace(tmp_path, conv_net(), batch=8)
    parameters = 4 * (16 * 3 * 9 + 16 + 160 + 10)
    image, features = 4 * 8 * 3 * 32 * 32, 4 * 8 * 16 * 16 * 16
    assert sum(bytes_of(found, Category.PARAMETERS)) == parameters
    assert max(curve(found)) == parameters + image + 2 * features
    assert found.origin.parameter_count == parameters // 4
    assert (found.origin.kind, found.origin.mode, found.origin.batch) == ("onnx", "inference", 8)


def test_a_matrix_product_of_a_dense_network_has_its_peak_between_the_layers(tmp_path: Path) -> None:
    found = trace(tmp_path, mlp(), batch=64)
    assert max(curve(found)) == 4 * (100 * 200 + 200 + 2000) + 4 * 64 * 100 + 2 * 4 * 64 * 200


def test_only_the_weights_remain_after_each_run(tmp_path: Path) -> None:
    found = trace(tmp_path, mlp(), batch=64, runs=3)
    after = [level for level, kind in zip(curve(found), found.event_kind, strict=True) if kind == Event.STEP]
    assert after == [4 * (100 * 200 + 200 + 2000)] * 3
    assert found.steps == found.origin.steps == 3


def test_inputs_come_and_outputs_go_over_the_bus_in_every_run(tmp_path: Path) -> None:
    found = trace(tmp_path, mlp(), batch=64)
    assert found.bytes_per_step(H2D) == 4 * 64 * 100
    assert found.bytes_per_step(D2H) == 4 * 64 * 10
    assert bytes_of(found, Category.INPUTS) == [4 * 64 * 100] * 4


def test_a_transformer_block_with_computed_shapes_follows_batch_and_sequence(tmp_path: Path) -> None:
    found = trace(tmp_path, block(), batch=2, sizes={"sequence": 10}, runs=1)
    hidden, scores = 4 * 2 * 10 * 32, 4 * 2 * 4 * 10 * 10
    parameters = 4 * (32 + 32 + 2 * 32 * 32)
    # x, n, q0, k0 are followed by the transposed queries and keys, then by the scores and their softmax.
    assert bytes_of(found, Category.ACTIVATIONS) == [hidden] * 5 + [scores] * 2
    assert bytes_of(found, Category.PARAMETERS) == [128, 128, 4096, 4096]
    assert max(curve(found)) == parameters + hidden + max(3 * hidden, 2 * hidden + scores, 2 * scores)
    assert names(found) == [
        H2D, "aten::native_layer_norm", "aten::mm", "aten::mm", "onnx::Transpose", "onnx::Transpose", "aten::bmm",
        "aten::_softmax", D2H,
    ]  # fmt: skip


def test_the_first_value_of_a_chain_is_freed_after_its_last_use(tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "a"), node("Exp", "a", "b"), node("Add", "a b", "c"), node("Neg", "c", "y")]
    found = trace(tmp_path, model(nodes, [info("x", [256])], [info("y", [256])]), runs=1)
    assert max(curve(found)) == 4 * 1024  # x, a, b and c
    assert curve(found)[-1] == 0


# -- what shares memory ------------------------------------------------------------------------------------------------


def test_views_take_no_memory_and_keep_what_they_look_at(tmp_path: Path) -> None:
    nodes = [
        node("Relu", "x", "a"), node("Reshape", "a to", "b"), node("Unsqueeze", "b axis", "c"),
        node("Identity", "c", "d"), node("Squeeze", "d axis", "e"), node("Dropout", "e", "f"),
        node("Cast", "f", "g", to=FLOAT), node("Flatten", "g", "h"), node("Exp", "h", "y"),
    ]  # fmt: skip
    proto = model(nodes, [info("x", [16, 16])], [info("y", None)], [integers("to", 4, 64), integers("axis", 0)])
    found = trace(tmp_path, proto, runs=1)
    assert bytes_of(found, Category.ACTIVATIONS) == [1024, 1024]
    assert bytes_of(found, Category.PARAMETERS) == []
    assert names(found) == [H2D, "aten::relu", "aten::exp", D2H]
    assert max(curve(found)) == 3 * 1024


def test_a_cast_to_another_type_is_a_new_tensor(tmp_path: Path) -> None:
    nodes = [node("Cast", "x", "y", to=TensorProto.FLOAT16)]
    found = trace(tmp_path, model(nodes, [info("x", [256])], [info("y", None)]), runs=1)
    assert bytes_of(found, Category.ACTIVATIONS) == [512]


def test_an_output_that_is_a_view_of_the_input_or_of_a_weight_is_copied_back(tmp_path: Path) -> None:
    nodes = [node("Identity", "x", "y"), node("Identity", "w", "z")]
    proto = model(nodes, [info("x", [256])], [info("y", [256]), info("z", [64])], [weight("w", 64)])
    found = trace(tmp_path, proto, runs=2)
    assert max(curve(found)) == 1024 + 256
    assert found.bytes_per_step(D2H) == 1024 + 256


def test_an_input_of_which_only_the_shape_is_read_stays_on_the_host(tmp_path: Path) -> None:
    nodes = [node("Shape", "x", "s"), node("Expand", "w s", "y")]
    found = trace(tmp_path, model(nodes, [info("x", [8, 32])], [info("y", None)], [weight("w", 32)]), runs=1)
    assert bytes_of(found, Category.INPUTS) == []
    assert bytes_of(found, Category.ACTIVATIONS) == [1024]


# -- operators ---------------------------------------------------------------------------------------------------------


def test_a_convolution_reads_as_torch_would_call_it(tmp_path: Path) -> None:
    convolution = calls(trace(tmp_path, conv_net(), batch=8))[1]
    assert convolution.name == "aten::convolution"
    assert [spec.shape for spec in convolution.inputs if spec] == [(8, 3, 32, 32), (16, 3, 3, 3), (16,)]
    assert convolution.attributes == {
        "stride": (2, 2), "padding": (1, 1), "dilation": (1, 1), "transposed": False, "output_padding": (0, 0),
        "groups": 1,
    }  # fmt: skip


def test_padding_that_the_file_leaves_to_the_runtime_is_computed(tmp_path: Path) -> None:
    nodes = [node("Conv", "x w", "y", auto_pad="SAME_UPPER", strides=[2, 2])]
    proto = model(nodes, [info("x", [1, 3, 15, 15])], [info("y", None)], [weight("w", 4, 3, 5, 5)])
    convolution = calls(trace(tmp_path, proto))[1]
    assert convolution.attributes["padding"] == (2, 2)
    assert convolution.inputs[2] is None
    assert convolution.outputs[0].shape == (1, 4, 8, 8)


def test_a_transposed_convolution_is_marked_as_one(tmp_path: Path) -> None:
    nodes = [node("ConvTranspose", "x w", "y", strides=[2, 2], output_padding=[1, 1], pads=[1, 1, 1, 1])]
    proto = model(nodes, [info("x", [1, 8, 5, 5])], [info("y", None)], [weight("w", 8, 4, 3, 3)])
    convolution = calls(trace(tmp_path, proto))[1]
    assert convolution.attributes["transposed"] is True
    assert convolution.attributes["output_padding"] == (1, 1)
    assert convolution.outputs[0].shape == (1, 4, 10, 10)


def test_a_gemm_is_a_product_with_or_without_a_bias(tmp_path: Path) -> None:
    _, first, _, second, _ = calls(trace(tmp_path, mlp(), batch=64))
    assert first.name == "aten::addmm"
    assert [spec.shape for spec in first.inputs if spec] == [(200,), (64, 100), (100, 200)]
    assert second.name == "aten::mm"
    assert second.inputs[1] == TensorSpec((200, 10), "float32", "strided", (1, 200))


@pytest.mark.parametrize(
    ("left", "right", "name", "shapes"),
    [
        ([3, 4], [4, 5], "aten::mm", [(3, 4), (4, 5), (3, 5)]),
        ([2, 3, 4], [4, 5], "aten::mm", [(6, 4), (4, 5), (6, 5)]),
        ([2, 6, 3, 4], [6, 4, 5], "aten::bmm", [(12, 3, 4), (12, 4, 5), (12, 3, 5)]),
        ([3, 4], [7, 4, 5], "aten::bmm", [(7, 3, 4), (7, 4, 5), (7, 3, 5)]),
        ([4], [7, 4, 5], "aten::bmm", [(7, 1, 4), (7, 4, 5), (7, 1, 5)]),
        ([2, 3, 4], [4], "aten::mm", [(6, 4), (4, 1), (6, 1)]),
    ],
)
def test_a_matrix_product_has_the_shapes_of_the_kernel(
    tmp_path: Path, left: list[int], right: list[int], name: str, shapes: list[tuple[int, ...]]
) -> None:
    proto = model([node("MatMul", "a b", "y")], [info("a", left), info("b", right)], [info("y", None)])
    product = next(operator for operator in calls(trace(tmp_path, proto)) if operator.name.endswith("mm"))
    assert product.name == name
    assert [spec.shape for spec in (*product.inputs, *product.outputs) if spec] == shapes


def test_the_estimate_finds_the_workspace_of_a_convolution(tmp_path: Path) -> None:
    nodes = [node("Conv", "x w", "y", pads=[1, 1, 1, 1])]
    proto = model(nodes, [info("x", [8, 64, 32, 32])], [info("y", None)], [weight("w", 64, 64, 3, 3)])
    found = trace(tmp_path, proto)
    assert sum(temporaries(calls(found)[1], find_gpu("H200"), found.origin)) > 0


def test_a_reduction_knows_its_dims_wherever_the_file_keeps_them(tmp_path: Path) -> None:
    new = model(
        [node("ReduceMean", "x axes", "y", keepdims=0)],
        [info("x", [2, 3, 4])],
        [info("y", None)],
        [integers("axes", 1)],
    )
    old = model(
        [node("ReduceMean", "x", "y", axes=[1], keepdims=0)], [info("x", [2, 3, 4])], [info("y", None)], opset=13
    )
    for proto in (new, old):
        reduction = calls(trace(tmp_path, proto))[1]
        assert (reduction.name, reduction.attributes) == ("aten::mean", {"dim": (1,), "keepdim": False})


def test_a_recurrent_network_is_one_operator_with_a_workspace(tmp_path: Path) -> None:
    weights = [weight("w", 1, 32, 16), weight("r", 1, 32, 8)]
    nodes = [node("LSTM", "x w r", "y", hidden_size=8)]
    found = trace(tmp_path, model(nodes, [info("x", [5, 3, 16])], [info("y", None)], weights))
    assert calls(found)[1].name == "aten::_cudnn_rnn"
    assert sum(temporaries(calls(found)[1], find_gpu("H200"), found.origin)) > 0


def test_operators_without_a_counterpart_keep_their_name_and_modules_are_scopes(tmp_path: Path) -> None:
    found = trace(
        tmp_path,
        model(
            [
                node(
                    "Mish",
                    "x",
                    "y",
                )
            ],
            [info("x", [4])],
            [info("y", None)],
        ),
    )
    assert names(found)[1] == "onnx::Mish"
    assert "net.Mish" in found.modules


# -- weights -----------------------------------------------------------------------------------------------------------


def test_weights_in_another_file_are_counted_and_not_read(tmp_path: Path) -> None:
    inside = trace(tmp_path, mlp(), batch=64)
    onnx.save_model(
        mlp(), tmp_path / "external.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0
    )
    (tmp_path / "weights.bin").unlink()
    outside = trace_onnx(tmp_path / "external.onnx", batch=64)
    assert curve(outside) == curve(inside)
    assert outside.origin.parameter_count == inside.origin.parameter_count


def test_small_shapes_in_another_file_are_read(tmp_path: Path) -> None:
    proto = model([node("Reshape", "x to", "y")], [info("x", [4, 6])], [info("y", None)], [integers("to", 3, 8)])
    onnx.save_model(proto, tmp_path / "e.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    assert calls(trace_onnx(tmp_path / "e.onnx"))[-1].inputs[0] == TensorSpec((3, 8), "float32")
    (tmp_path / "w.bin").unlink()
    with pytest.raises(CaptureError, match=r"/net/Reshape"):
        trace_onnx(tmp_path / "e.onnx")


def test_every_weight_is_copied_to_the_gpu_once_before_the_first_run(tmp_path: Path) -> None:
    found = trace(tmp_path, mlp(), batch=64)
    loaded = [found.operators[found.call_operator[call]] for call in np.flatnonzero(found.call_phase == Phase.SETUP)]
    assert [operator.name for operator in loaded] == [H2D] * 3
    assert [operator.inputs[0].shape for operator in loaded if operator.inputs[0]] == [(100, 200), (200,), (10, 200)]


def test_a_weight_that_nothing_reads_takes_no_memory(tmp_path: Path) -> None:
    proto = model([node("Relu", "x", "y")], [info("x", [4])], [info("y", [4])], [weight("unused", 1000)])
    assert bytes_of(trace(tmp_path, proto), Category.PARAMETERS) == []


def test_old_files_list_weights_among_the_inputs(tmp_path: Path) -> None:
    proto = model(
        [node("Add", "x w", "y")], [info("x", ["n", 64]), info("w", [64])], [info("y", None)], [weight("w", 64)]
    )
    found = trace(tmp_path, proto, batch=2, runs=1)
    assert bytes_of(found, Category.PARAMETERS) == [256]
    assert bytes_of(found, Category.INPUTS) == [512]


def test_constants_in_nodes_are_weights(tmp_path: Path) -> None:
    nodes = [node("Constant", "", "w", value=weight("w", 64)), node("Add", "x w", "y")]
    found = trace(tmp_path, model(nodes, [info("x", [64])], [info("y", None)]))
    assert bytes_of(found, Category.PARAMETERS) == [256]
    assert found.origin.parameter_count == 64


def test_weights_of_four_bits_are_packed(tmp_path: Path) -> None:
    packed = helper.make_tensor("w", TensorProto.INT4, [101, 32], np.zeros(101 * 32, dtype=np.int8))
    nodes = [node("DequantizeLinear", "w scale", "f"), node("MatMul", "x f", "y")]
    proto = model(nodes, [info("x", [1, 101])], [info("y", None)], [packed, weight("scale")], opset=21)
    assert bytes_of(trace(tmp_path, proto), Category.PARAMETERS) == [101 * 16, 4]


# -- quantised models --------------------------------------------------------------------------------------------------


def test_a_model_with_quantize_and_dequantize_nodes_keeps_int8_weights(tmp_path: Path) -> None:
    nodes = [
        node("QuantizeLinear", "x s z", "xq"), node("DequantizeLinear", "xq s z", "xf"),
        node("DequantizeLinear", "wq s z", "wf"), node("MatMul", "xf wf", "y"),
    ]  # fmt: skip
    weights = [weight("s"), weight("z", dtype=np.int8), weight("wq", 64, 32, dtype=np.int8)]
    found = trace(tmp_path, model(nodes, [info("x", ["n", 64])], [info("y", None)], weights), batch=4, runs=1)
    parameters, x, wide = 4 + 1 + 64 * 32, 4 * 4 * 64, 4 * 64 * 32
    assert sum(bytes_of(found, Category.PARAMETERS)) == parameters
    assert max(curve(found)) == parameters + x + x + wide + 4 * 4 * 32  # x, its rounded twin, the weights in fp32, y


def test_quantised_operators_work_on_bytes(tmp_path: Path) -> None:
    nodes = [node("QLinearConv", "x s z w s z s z", "c"), node("QLinearMatMul", "c s z v s z s z", "y")]
    bytes_, small = np.uint8, [weight("s"), weight("z", dtype=np.uint8)]
    weights = [*small, weight("w", 4, 3, 3, 3, dtype=bytes_), weight("v", 6, 9, dtype=bytes_)]
    proto = model(nodes, [info("x", [1, 3, 8, 8], TensorProto.UINT8)], [info("y", None)], weights)
    found = trace(tmp_path, proto, runs=1)
    _, convolution, product, _ = calls(found)
    assert (convolution.name, product.name) == ("aten::convolution", "aten::_int_mm")
    assert convolution.inputs[1] == TensorSpec((4, 3, 3, 3), "uint8")
    assert bytes_of(found, Category.ACTIVATIONS) == [4 * 6 * 6, 4 * 6 * 9]
    assert temporaries(convolution, find_gpu("H200"), found.origin) == ()


# -- subgraphs ---------------------------------------------------------------------------------------------------------


def conditional(*weights: Any) -> Any:
    small = helper.make_graph([node("Relu", "x", "t")], "then", [], [info("t", None)])
    twice = [node("Concat", "x x", "t", axis=0), node("Add", "t w", "e")]
    large = helper.make_graph(twice, "else", [], [info("e", None)], [weight("w", 64)])
    choice = node("If", "c", "r", then_branch=small, else_branch=large)
    inputs = [info("x", [4, 64])] + ([] if weights else [info("c", [], BOOL)])
    return model([choice, node("Exp", "r", "y")], inputs, [info("y", None)], weights)


def test_of_two_branches_the_larger_is_followed_with_a_warning(tmp_path: Path) -> None:
    found = trace(tmp_path, conditional(), runs=1)
    assert bytes_of(found, Category.ACTIVATIONS) == [2048, 2048, 2048]
    assert bytes_of(found, Category.PARAMETERS) == [256]
    assert len(found.origin.warnings) == 1
    assert "/net/If" in found.origin.warnings[0]


def test_a_branch_that_is_known_is_followed_without_a_warning(tmp_path: Path) -> None:
    found = trace(tmp_path, conditional(numpy_helper.from_array(np.array(True), "c")), runs=1)
    assert bytes_of(found, Category.ACTIVATIONS) == [1024, 1024]
    assert bytes_of(found, Category.PARAMETERS) == []
    assert found.origin.warnings == ()


def loop(*weights: Any) -> Any:
    nodes = [node("Identity", "going", "on"), node("Relu", "state", "next"), node("Neg", "next", "part")]
    inputs = [info("i", [], INT64), info("going", [], BOOL), info("state", [8, 32])]
    body = helper.make_graph(nodes, "body", inputs, [info("on", [], BOOL), info("next", None), info("part", None)])
    inputs = [info("x", [8, 32])] + ([] if weights else [info("m", [], INT64)])
    looped = node("Loop", "m cond x", "last all", body=body)
    constants = [*weights, numpy_helper.from_array(np.array(True), "cond")]
    return model([looped], inputs, [info("last", None), info("all", None)], constants)


def test_a_loop_is_followed_once_and_collects_what_every_iteration_returns(tmp_path: Path) -> None:
    found = trace(tmp_path, loop(numpy_helper.from_array(np.int64(5), "m")), runs=1)
    assert bytes_of(found, Category.ACTIVATIONS) == [1024, 1024, 5 * 1024]
    assert "one iteration" in found.origin.warnings[0]


def test_a_loop_that_collects_an_unknown_number_of_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"/net/Loop \(Loop\)"):
        trace(tmp_path, loop())


def test_a_scan_is_followed_for_one_slice(tmp_path: Path) -> None:
    nodes = [node("Add", "state part", "next"), node("Relu", "next", "out")]
    inputs = [info("state", [32]), info("part", [32])]
    body = helper.make_graph(nodes, "body", inputs, [info("next", None), info("out", None)])
    scan = node("Scan", "start x", "last all", body=body, num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[-1])
    proto = model([scan], [info("start", [32]), info("x", [32, 6])], [info("last", None), info("all", None)])
    found = trace(tmp_path, proto, runs=1)
    assert bytes_of(found, Category.ACTIVATIONS) == [128, 128, 6 * 128]
    assert found.bytes_per_step(D2H) == 128 + 6 * 128


def test_functions_in_the_file_are_opened(tmp_path: Path) -> None:
    inner = [helper.make_node("Relu", ["a"], ["m"]), helper.make_node("Exp", ["m"], ["b"])]
    function = helper.make_function("custom", "Both", ["a"], ["b"], inner, [helper.make_opsetid("", 18)])
    proto = model([helper.make_node("Both", ["x"], ["y"], domain="custom")], [info("x", [256])], [info("y", None)])
    proto.functions.append(function)
    assert names(trace(tmp_path, proto))[1:3] == ["aten::relu", "aten::exp"]


# -- open sizes --------------------------------------------------------------------------------------------------------


def test_dimensions_without_a_size_are_named_with_the_option_that_sets_them(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="batch, sequence") as error:
        trace(tmp_path, block())
    assert "--batch 8" in error.value.hint
    assert "--size sequence=128" in error.value.hint
    with pytest.raises(UsageError, match="sequence") as error:
        trace(tmp_path, block(), batch=2)
    assert "--batch" not in error.value.hint


def test_a_dimension_without_a_name_is_called_after_its_input(tmp_path: Path) -> None:
    proto = model([node("Relu", "x", "y")], [info("x", [1, None])], [info("y", None)])
    with pytest.raises(UsageError, match=r"x\.1"):
        trace(tmp_path, proto)
    assert trace(tmp_path, proto, sizes={"x.1": 7}).bytes_per_step(H2D) == 28


def test_the_batch_can_also_be_given_by_its_name(tmp_path: Path) -> None:
    found = trace(tmp_path, conv_net(), sizes={"batch": 8})
    assert curve(found) == curve(trace(tmp_path, conv_net(), batch=8))
    assert found.origin.batch == 8


def test_a_size_that_the_model_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no open dimension length") as error:
        trace(tmp_path, block(), batch=2, sizes={"length": 3})
    assert "sequence" in error.value.hint


@pytest.mark.parametrize("batch", [0, -1, 10**7 + 1])
def test_an_absurd_batch_is_refused(tmp_path: Path, batch: int) -> None:
    with pytest.raises(UsageError, match=f"the batch is {batch}"):
        trace(tmp_path, mlp(), batch=batch)


@pytest.mark.parametrize("size", [-1, 2**31])
def test_an_absurd_size_is_refused(tmp_path: Path, size: int) -> None:
    with pytest.raises(UsageError, match="the size of sequence"):
        trace(tmp_path, block(), batch=1, sizes={"sequence": size})


def test_a_batch_other_than_the_fixed_one_is_refused(tmp_path: Path) -> None:
    proto = model([node("Relu", "x", "y")], [info("x", [1, 4])], [info("y", None)])
    assert trace(tmp_path, proto, batch=1).origin.batch == 1
    with pytest.raises(UsageError, match=r"batch 8 cannot be chosen.*fixed at 1"):
        trace(tmp_path, proto, batch=8)


def test_no_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="runs"):
        trace(tmp_path, mlp(), batch=1, runs=0)


def test_sizes_that_make_a_tensor_beyond_all_memory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="would take"):
        trace(tmp_path, block(), batch=10**7, sizes={"sequence": 2**31 - 1})


def test_a_file_that_was_exported_for_one_size_is_refused_at_another(tmp_path: Path) -> None:
    nodes = [node("Reshape", "x to", "y")]
    proto = model(nodes, [info("x", ["n", 6])], [info("y", None)], [integers("to", 3, 4)])
    assert trace(tmp_path, proto, batch=2)
    with pytest.raises(CaptureError, match=r"cannot turn the shape \(5, 6\) into \(3, 4\)"):
        trace(tmp_path, proto, batch=5)


# -- what cannot be followed -------------------------------------------------------------------------------------------


def test_an_output_whose_shape_depends_on_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"/net/NonZero \(NonZero\).*depends on data"):
        trace(tmp_path, model([node("NonZero", "x", "y")], [info("x", [4])], [info("y", None, INT64)]))


def test_an_output_whose_shape_depends_on_data_can_be_given_a_size(tmp_path: Path) -> None:
    proto = model([node("NonZero", "x", "y")], [info("x", [4])], [info("y", [1, "found"], INT64)])
    with pytest.raises(CaptureError) as error:
        trace(tmp_path, proto)
    assert "--size found=128" in error.value.hint
    assert trace(tmp_path, proto, sizes={"found": 3}).bytes_per_step(D2H) == 24


def test_an_unknown_operator_is_refused_unless_the_file_tells_its_shape(tmp_path: Path) -> None:
    custom = helper.make_node("Magic", ["x"], ["h"], name="magic", domain="custom")
    nodes, inputs, outputs = [custom, node("Relu", "h", "y")], [info("x", ["n", 4])], [info("y", None)]
    with pytest.raises(CaptureError, match=r"node magic \(Magic\).*does not know"):
        trace(tmp_path, model(nodes, inputs, outputs), batch=2)
    told = model(nodes, inputs, outputs, value_info=[info("h", ["n", 64])])
    assert names(trace(tmp_path, told, batch=2))[1:3] == ["onnx::Magic", "aten::relu"]


def test_shapes_that_do_not_go_together_are_refused_with_the_reason(tmp_path: Path) -> None:
    proto = model([node("MatMul", "a b", "y")], [info("a", [2, 3]), info("b", [4, 5])], [info("y", None)])
    with pytest.raises(CaptureError, match=r"/net/MatMul \(MatMul\).*Incompatible dimensions"):
        trace(tmp_path, proto)


def test_sequences_and_text_are_refused(tmp_path: Path) -> None:
    split = model(
        [node("SplitToSequence", "x", "y")], [info("x", [4])], [helper.make_value_info("y", onnx.TypeProto())]
    )
    with pytest.raises(CaptureError, match=r"SplitToSequence.*sequence"):
        trace(tmp_path, split)
    listed = helper.make_tensor_sequence_value_info("x", FLOAT, [4])
    with pytest.raises(CaptureError, match=r"input x .*sequence"):
        trace(tmp_path, model([node("SequenceLength", "x", "y")], [listed], [info("y", None)]))
    with pytest.raises(CaptureError, match="string"):
        trace(tmp_path, model([node("Identity", "x", "y")], [info("x", [4], TensorProto.STRING)], [info("y", None)]))


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"nothing\.onnx"):
        trace_onnx(tmp_path / "nothing.onnx")


@pytest.mark.parametrize(
    "content", [b"", b"\x00", b"hello, this is not a model", b"PK\x03\x04" * 40, mlp().SerializeToString()[:3000]]
)
def test_something_else_than_an_onnx_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(InvalidFile, match=r"model\.onnx is (empty|not an ONNX file)"):
        trace_onnx(path, batch=1)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="cannot be read"):
        trace_onnx(tmp_path)


def test_a_file_from_the_future_is_refused_with_a_hint(tmp_path: Path) -> None:
    newer = mlp()
    newer.ir_version = onnx.IR_VERSION + 1
    with pytest.raises(InvalidFile, match="IR version") as error:
        trace(tmp_path, newer, batch=1)
    assert "upgrade" in error.value.hint
    newer = mlp()
    newer.opset_import[0].version = 1000
    with pytest.raises(InvalidFile, match="operator set 1000"):
        trace(tmp_path, newer, batch=1)


def test_nodes_that_read_or_promise_what_nobody_computes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match=r"reads nobody"):
        trace(tmp_path, model([node("Relu", "nobody", "y")], [], [info("y", None)]))
    with pytest.raises(InvalidFile, match="promises the output z"):
        trace(tmp_path, model([node("Relu", "x", "y")], [info("x", [1])], [info("z", None)]))
    with pytest.raises(InvalidFile, match="malformed"):
        trace(tmp_path, model([node("Constant", "", "y")], [], [info("y", None)]))


def test_damaged_files_never_end_in_anything_but_a_sentence(tmp_path: Path) -> None:
    """Bytes are changed at random; whatever is still a model is followed, everything else refused."""
    generator = np.random.default_rng(7)
    for proto in (conv_net(), block(), conditional(), loop(numpy_helper.from_array(np.int64(5), "m"))):
        content = np.frombuffer(proto.SerializeToString(), dtype=np.uint8)
        for _ in range(150):
            damaged = content.copy()
            damaged[generator.integers(0, len(content), 3)] = generator.integers(0, 256, 3)
            path = tmp_path / "damaged.onnx"
            path.write_bytes(damaged.tobytes())
            _refused_or_followed(path)


def _refused_or_followed(path: Path) -> None:
    try:
        trace_onnx(path, batch=2, runs=1)
    except (UsageError, CaptureError) as error:
        assert str(error)  # noqa: PT017  (either way is right)


def test_without_the_onnx_package_the_message_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path, mlp())
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingDependency, match="reading ONNX files needs the onnx package") as error:
        trace_onnx(path, batch=1)
    assert error.value.hint == "pip install tonnage[onnx]"


# -- as a whole --------------------------------------------------------------------------------------------------------


def test_the_same_file_gives_the_same_trace_which_survives_being_written(tmp_path: Path) -> None:
    first, second = (trace(tmp_path, block(), batch=2, sizes={"sequence": 10}) for _ in range(2))
    assert dump_trace(first) == dump_trace(second)
    again = load_trace(dump_trace(first))
    assert again.operators == first.operators
    assert again.origin == first.origin
    assert curve(again) == curve(first)
    assert dump_trace(again) == dump_trace(first)


@pytest.mark.parametrize("opset", [1, 7, 11, 13, 18, 22])
def test_operator_sets_old_and_new_are_read(tmp_path: Path, opset: int) -> None:
    nodes = [node("Conv", "x w", "c"), node("Relu", "c", "r"), node("MaxPool", "r", "y", kernel_shape=[2, 2])]
    proto = model(nodes, [info("x", [2, 3, 9, 9])], [info("y", None)], [weight("w", 4, 3, 2, 2)], opset=opset)
    assert names(trace(tmp_path, proto))[1:4] == ["aten::convolution", "aten::relu", "aten::max_pool2d_with_indices"]


def test_the_broadcasts_and_reshapes_of_the_first_operator_sets_are_read(tmp_path: Path) -> None:
    nodes = [node("Add", "x w", "a", broadcast=1, axis=1), node("Reshape", "a", "y", shape=[2, -1])]
    proto = model(nodes, [info("x", [2, 3, 4, 4])], [info("y", None)], [weight("w", 3)], opset=1)
    assert calls(trace(tmp_path, proto))[-1].inputs[0] == TensorSpec((2, 48), "float32")


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed: no export was tried")
def test_an_export_of_torch_has_the_parameters_and_shapes_of_the_module(tmp_path: Path) -> None:
    import torch
    from torch import nn

    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10)]
    network = nn.Sequential(*layers).eval()
    path = tmp_path / "torch.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # The exporter that needs no other package; that torch calls it old is no concern of this test.
        torch.onnx.export(
            network,
            (torch.zeros(1, 3, 8, 8),),
            str(path),
            dynamo=False,
            input_names=["x"],
            dynamic_axes={"x": {0: "n"}},
        )
    found = trace_onnx(path, batch=5)
    folded = sum(p.numel() for layer in layers if not isinstance(layer, nn.BatchNorm2d) for p in layer.parameters())
    assert found.origin.parameter_count == folded
    assert names(found) == [H2D, "aten::convolution", "aten::relu", "aten::addmm", D2H]
    assert max(curve(found)) == 4 * (folded + 5 * 3 * 64 + 2 * 5 * 8 * 36)

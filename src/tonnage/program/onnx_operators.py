"""ONNX operators under the names that torch gives them, so that an estimate knows their workspaces and their work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from tonnage.program.trace import Attribute, Operator, TensorSpec

if TYPE_CHECKING:
    from tonnage.program.onnx_file import Tensor
    from tonnage.program.onnx_shapes import Node

Specs: TypeAlias = tuple[TensorSpec | None, ...]
Outputs: TypeAlias = tuple[TensorSpec, ...]
Rule: TypeAlias = Callable[["Node", Specs, Outputs], Operator | None]

_VIEWS = frozenset(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout"))


def is_view(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Does the first output live in the memory of the first input?"""
    if node.domain or not node.outputs or not node.outputs[0]:
        return False
    same_type = node.op_type == "Cast" and tensors[node.inputs[0]].elem_type == tensors[node.outputs[0]].elem_type
    return node.op_type in _VIEWS or same_type


def operator_of(node: Node, tensors: Mapping[str, Tensor]) -> Operator:
    """The operator as torch would call it; `onnx::NAME` where torch has none that fits."""
    inputs = tuple(tensors[name].spec if name else None for name in node.inputs)
    outputs = tuple(tensors[name].spec for name in node.outputs if name)
    rule = None if node.domain else _RULES.get(node.op_type)
    operator = rule(node, inputs, outputs) if rule else None
    return operator or Operator(f"onnx::{node.op_type}", inputs, outputs, node.attributes)


# -- convolutions -----------------------------------------------------------------------------------------------------


def _convolution(*positions: int, transposed: bool = False) -> Rule:
    """`positions` of input, weight and bias among the node's inputs."""

    def rule(node: Node, inputs: Specs, outputs: Outputs) -> Operator | None:
        source, weight, bias = (_at(inputs, position) for position in positions)
        dims = 0 if weight is None else len(weight.shape) - 2
        if source is None or weight is None or dims < 1 or len(source.shape) != dims + 2:
            return None
        stride = _integers(node, "strides", (1,) * dims)
        dilation = _integers(node, "dilations", (1,) * dims)
        attributes: dict[str, Attribute] = {
            "stride": stride,
            "padding": _padding(node, source, weight, outputs[0], stride, dilation),
            "dilation": dilation,
            "transposed": transposed,
            "output_padding": _integers(node, "output_padding", (0,) * dims),
            "groups": _integer(node, "group", 1),
        }
        return Operator("aten::convolution", (source, weight, bias), outputs, attributes)

    return rule


def _padding(
    node: Node,
    source: TensorSpec,
    weight: TensorSpec,
    result: TensorSpec,
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
) -> tuple[int, ...]:
    """torch pads both sides alike: the larger one counts."""
    sizes = weight.shape[2:]
    if str(node.attributes.get("auto_pad", "NOTSET")).startswith("SAME"):
        # What the output needs beyond the input (of a transposed convolution: the other way round), half on each side.
        larger, smaller = (source, result) if node.op_type != "ConvTranspose" else (result, source)
        spans = zip(larger.shape[2:], smaller.shape[2:], sizes, stride, dilation, strict=True)
        return tuple(max(0, (s - 1) * step + (k - 1) * d + 1 - size + 1) // 2 for size, s, k, step, d in spans)
    pads = _integers(node, "pads", (0,) * 2 * len(sizes))
    return tuple(max(pair) for pair in zip(pads[: len(sizes)], pads[len(sizes) :], strict=True))


# -- matrix products --------------------------------------------------------------------------------------------------


def _gemm(node: Node, inputs: Specs, outputs: Outputs) -> Operator | None:
    left, right, bias = (_at(inputs, position) for position in range(3))
    if left is None or right is None or len(left.shape) != 2 or len(right.shape) != 2:
        return None
    left = _turned(left) if _integer(node, "transA", 0) else left
    right = _turned(right) if _integer(node, "transB", 0) else right
    if bias is None:
        return Operator("aten::mm", (left, right), outputs)
    scales = {"beta": node.attributes.get("beta", 1.0), "alpha": node.attributes.get("alpha", 1.0)}
    return Operator("aten::addmm", (bias, left, right), outputs, scales)


def _turned(spec: TensorSpec) -> TensorSpec:
    rows, columns = spec.shape
    return TensorSpec((columns, rows), spec.dtype, "strided", (1, columns))


def _matmul(*positions: int, integers: bool = False) -> Rule:
    """`positions` of the two factors. A product of many matrices with one is a product of one tall matrix."""

    def rule(node: Node, inputs: Specs, outputs: Outputs) -> Operator | None:  # noqa: ARG001
        left, right = (_at(inputs, position) for position in positions)
        if left is None or right is None or not left.shape or not right.shape:
            return None
        a = left.shape if len(left.shape) > 1 else (1, *left.shape)
        b = right.shape if len(right.shape) > 1 else (*right.shape, 1)
        batch: tuple[int, ...] = ()
        if len(b) == 2:
            name = "aten::_int_mm" if integers else "aten::mm"
            a = (prod(a[:-1]), a[-1])
        elif integers:
            return None
        else:
            rows, columns = (1 if len(left.shape) == 1 else a[-2]), b[-1]
            name, batch = "aten::bmm", (prod(outputs[0].shape) // max(rows * columns, 1),)
        factors = (TensorSpec((*batch, *a[-2:]), left.dtype), TensorSpec((*batch, *b[-2:]), right.dtype))
        return Operator(name, factors, (TensorSpec((*batch, a[-2], b[-1]), outputs[0].dtype),))

    return rule


# -- the rest ---------------------------------------------------------------------------------------------------------


def _plain(name: str) -> Rule:
    """The same inputs in the same order."""

    def rule(node: Node, inputs: Specs, outputs: Outputs) -> Operator:
        return Operator(f"aten::{name}", inputs, outputs, node.attributes)

    return rule


def _softmax(name: str) -> Rule:
    def rule(node: Node, inputs: Specs, outputs: Outputs) -> Operator:
        return Operator(f"aten::{name}", inputs, outputs, {"dim": _integer(node, "axis", -1), "half_to_float": False})

    return rule


def _reduction(name: str) -> Rule:
    def rule(node: Node, inputs: Specs, outputs: Outputs) -> Operator | None:
        source = _at(inputs, 0)
        if source is None:
            return None
        every = tuple(range(len(source.shape)))
        dims = every[2:] if node.op_type.startswith("Global") else _integers(node, "axes", every)
        keeps = bool(_integer(node, "keepdims", 1))
        return Operator(f"aten::{name}", (source,), outputs, {"dim": dims, "keepdim": keeps})

    return rule


def _layer_norm(name: str) -> Rule:
    def rule(node: Node, inputs: Specs, outputs: Outputs) -> Operator | None:
        source = _at(inputs, 0)
        if source is None:
            return None
        normalized = source.shape[_integer(node, "axis", -1) :]
        attributes = {"normalized_shape": normalized, "eps": node.attributes.get("epsilon", 1e-5)}
        return Operator(f"aten::{name}", inputs, outputs, attributes)

    return rule


def _batch_norm(node: Node, inputs: Specs, outputs: Outputs) -> Operator:
    attributes: dict[str, Attribute] = {"training": False, "eps": node.attributes.get("epsilon", 1e-5)}
    return Operator("aten::native_batch_norm", inputs, outputs, attributes)


def _group_norm(node: Node, inputs: Specs, outputs: Outputs) -> Operator:
    attributes = {"group": _integer(node, "num_groups", 1), "eps": node.attributes.get("epsilon", 1e-5)}
    return Operator("aten::native_group_norm", inputs, outputs, attributes)


def _pool(name: str) -> Rule:
    def rule(node: Node, inputs: Specs, outputs: Outputs) -> Operator | None:
        if len(outputs[0].shape) != 4:
            return None
        renamed = {"kernel_size": "kernel_shape", "stride": "strides", "padding": "pads", "dilation": "dilations"}
        present = {ours: node.attributes[theirs] for ours, theirs in renamed.items() if theirs in node.attributes}
        return Operator(f"aten::{name}", inputs, outputs, present)

    return rule


def _gather(node: Node, inputs: Specs, outputs: Outputs) -> Operator | None:
    """Rows of a table are an embedding."""
    table = _at(inputs, 0)
    if table is None or len(table.shape) != 2 or _integer(node, "axis", 0):
        return None
    return Operator("aten::embedding", inputs, outputs)


def _recurrent(mode: int) -> Rule:
    """One layer of a recurrent network; `mode` is a number of cudnnRNNMode_t."""

    def rule(node: Node, inputs: Specs, outputs: Outputs) -> Operator | None:
        recurrence = _at(inputs, 2)
        if recurrence is None:
            return None
        attributes: dict[str, Attribute] = {
            "mode": mode,
            "hidden_size": recurrence.shape[-1],
            "proj_size": 0,
            "num_layers": 1,
            "batch_first": bool(_integer(node, "layout", 0)),
            "dropout": 0.0,
            "train": False,
            "bidirectional": recurrence.shape[0] == 2,
        }
        return Operator("aten::_cudnn_rnn", inputs, outputs, attributes)

    return rule


def _at(inputs: Specs, position: int) -> TensorSpec | None:
    return inputs[position] if position < len(inputs) else None


def _integer(node: Node, name: str, default: int) -> int:
    value = node.attributes.get(name, default)
    return value if isinstance(value, int) else default


def _integers(node: Node, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    value = node.attributes.get(name)
    if not isinstance(value, tuple) or (name != "axes" and len(value) != len(default)):
        return default
    return tuple(item for item in value if isinstance(item, int))


_SAME_MEANING = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Pow": "pow", "Neg": "neg", "Abs": "abs", "Exp": "exp",
    "Log": "log", "Sqrt": "sqrt", "Erf": "erf", "Relu": "relu", "LeakyRelu": "leaky_relu", "Elu": "elu",
    "Sigmoid": "sigmoid", "Tanh": "tanh", "Gelu": "gelu", "HardSwish": "hardswish", "HardSigmoid": "hardsigmoid",
    "Clip": "clamp", "Where": "where", "Concat": "cat", "CumSum": "cumsum", "TopK": "topk", "Softplus": "softplus",
    "PRelu": "_prelu_kernel", "Equal": "eq", "Less": "lt", "Greater": "gt", "Sin": "sin", "Cos": "cos",
}  # fmt: skip
_REDUCTIONS = {
    "ReduceMean": "mean", "ReduceSum": "sum", "ReduceMax": "amax", "ReduceMin": "amin", "GlobalAveragePool": "mean",
    "GlobalMaxPool": "amax",
}  # fmt: skip
_RULES: Mapping[str, Rule] = {
    **{theirs: _plain(ours) for theirs, ours in _SAME_MEANING.items()},
    **{theirs: _reduction(ours) for theirs, ours in _REDUCTIONS.items()},
    "Conv": _convolution(0, 1, 2),
    "ConvTranspose": _convolution(0, 1, 2, transposed=True),
    "ConvInteger": _convolution(0, 1, 4),
    "QLinearConv": _convolution(0, 3, 8),
    "Gemm": _gemm,
    "MatMul": _matmul(0, 1),
    "MatMulInteger": _matmul(0, 1, integers=True),
    "QLinearMatMul": _matmul(0, 3, integers=True),
    "Softmax": _softmax("_softmax"),
    "LogSoftmax": _softmax("_log_softmax"),
    "LayerNormalization": _layer_norm("native_layer_norm"),
    "RMSNormalization": _layer_norm("_fused_rms_norm"),
    "BatchNormalization": _batch_norm,
    "GroupNormalization": _group_norm,
    "MaxPool": _pool("max_pool2d_with_indices"),
    "AveragePool": _pool("avg_pool2d"),
    "Gather": _gather,
    "LSTM": _recurrent(2),
    "GRU": _recurrent(3),
    "RNN": _recurrent(1),
}

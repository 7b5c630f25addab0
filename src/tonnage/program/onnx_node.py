"""One node of an ONNX graph by itself: the shapes it returns, small values where they are known, its attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

from tonnage.program.onnx_file import Tensor

Array: TypeAlias = np.ndarray[Any, Any]

# Values up to so many elements are read and computed with: enough for shapes, too little for weights.
_MOST_INTEGERS, _MOST_FLOATS = 1024, 16
_COMPUTED = frozenset((
    "Abs", "Add", "And", "ArgMax", "ArgMin", "Cast", "CastLike", "Ceil", "Concat", "ConstantOfShape", "CumSum", "Div",
    "Equal", "Exp", "Expand", "EyeLike", "Flatten", "Floor", "Gather", "GatherElements", "GatherND", "Greater",
    "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Log", "Max", "Min", "Mod", "Mul", "Neg", "NonZero", "Not",
    "Or", "Pad", "Pow", "Range", "Reciprocal", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
    "Reshape", "Round", "ScatterElements", "ScatterND", "Sign", "Slice", "Split", "Sqrt", "Squeeze", "Sub", "Sum",
    "Tile", "Transpose", "Trilu", "Unsqueeze", "Where", "Xor",
))  # fmt: skip
# Small inputs can ask these for something huge: they are computed only if the result is known to be small.
_GROWING = frozenset(("ConstantOfShape", "Expand", "Pad", "Range", "Tile"))
_ATTRIBUTE_TYPES = frozenset(
    (
        onnx.AttributeProto.INT, onnx.AttributeProto.FLOAT, onnx.AttributeProto.STRING,
        onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS, onnx.AttributeProto.STRINGS,
    )
)  # fmt: skip
_LONGEST_LIST = 64
_FIRST_INFERRED = 7


def alone(
    node: onnx.NodeProto, tensors: Mapping[str, Tensor], known: Mapping[str, Array], model: onnx.ModelProto
) -> onnx.ModelProto:
    """A model of this node only, with the values of inputs that are known."""
    names = dict.fromkeys(name for name in node.input if name)
    inputs = [
        helper.make_tensor_value_info(name, tensors[name].elem_type, tensors[name].shape)
        for name in names
        if name not in known
    ]
    values = [numpy_helper.from_array(known[name], name) for name in names if name in known]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    opsets = list(model.opset_import)
    if not any(is_standard(node) if is_standard(opset) else opset.domain == node.domain for opset in opsets):
        opsets.append(helper.make_opsetid(node.domain, 1))
    graph = onnx.GraphProto(name="alone", node=[node], input=inputs, output=outputs, initializer=values)
    return onnx.ModelProto(ir_version=onnx.IR_VERSION, graph=graph, opset_import=opsets)


def is_standard(named: onnx.NodeProto | onnx.OperatorSetIdProto) -> bool:
    return named.domain in ("", "ai.onnx")


def infer(model: onnx.ModelProto) -> list[onnx.TypeProto]:
    """The types of the node's outputs, as far as they follow from its inputs."""
    types = _infer(model)
    old = any(is_standard(opset) and opset.version < _FIRST_INFERRED for opset in model.opset_import)
    if old and not all(kind.tensor_type.HasField("shape") for kind in types):
        types = _infer(_modernised(model))
    return types


def _infer(model: onnx.ModelProto) -> list[onnx.TypeProto]:
    outputs = shape_inference.infer_shapes(model, data_prop=True).graph.output
    types = {output.name: output.type for output in outputs}
    return [types.get(name, onnx.TypeProto()) for name in model.graph.node[0].output]


def _modernised(model: onnx.ModelProto) -> onnx.ModelProto:
    """The node in terms of the first operator set whose shapes onnx infers throughout."""
    newer = onnx.ModelProto()
    newer.CopyFrom(model)
    for opset in newer.opset_import:
        opset.version = _FIRST_INFERRED if is_standard(opset) else opset.version
    node, before = newer.graph.node[0], attributes(model.graph.node[0])
    if node.op_type == "Reshape" and "shape" in before:
        node.input.append("shape attribute")
        newer.graph.initializer.append(numpy_helper.from_array(np.array(before["shape"], np.int64), "shape attribute"))
    if before.get("broadcast") and node.op_type in ("Add", "Sub", "Mul", "Div", "Pow"):
        node.op_type = "Identity"  # the second operand is spread over the first, which gives its shape to the result
        del node.input[1:]
        del node.attribute[:]
    return newer


def why_not(model: onnx.ModelProto) -> str:
    """Why the shapes of the node's outputs cannot be told."""
    try:
        shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    except shape_inference.InferenceError as error:
        return first_line(error)
    if onnx.defs.has(model.graph.node[0].op_type, model.graph.node[0].domain):
        return "it depends on data, or onnx does not infer it"
    return "the onnx package does not know this operator"


def compute(model: onnx.ModelProto, inferred: Sequence[onnx.TypeProto]) -> dict[str, Array]:
    """Values of the node's outputs, all of whose inputs are known; nothing if they are large or cannot be computed."""
    from onnx.reference import ReferenceEvaluator

    node = model.graph.node[0]
    if not is_standard(node) or node.op_type not in _COMPUTED or not all(_is_small(node, kind) for kind in inferred):
        return {}
    try:
        with np.errstate(all="ignore"):
            values: Any = ReferenceEvaluator(model).run(None, {})
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):
        return {}  # the reference has gaps; without the value, the shape that was inferred still holds
    return {name: np.asarray(value) for name, value in zip(filter(None, node.output), values, strict=True)}


def _is_small(node: onnx.NodeProto, kind: onnx.TypeProto) -> bool:
    shape = dims(kind, {})
    if shape is None or None in shape:
        return node.op_type not in _GROWING
    return worth_knowing([dim for dim in shape if dim is not None], kind.tensor_type.elem_type)


def worth_knowing(shape: Sequence[int], elem_type: int) -> bool:
    name = onnx.TensorProto.DataType.Name(elem_type)
    return prod(shape) <= (_MOST_INTEGERS if "INT" in name or name == "BOOL" else _MOST_FLOATS)


def dims(kind: onnx.TypeProto, sizes: Mapping[str, int]) -> list[int | None] | None:
    """The sizes in a type, None where one is open; None if not even their number is known."""
    if not kind.tensor_type.HasField("shape"):
        return None
    shape = kind.tensor_type.shape.dim
    return [dim.dim_value if dim.HasField("dim_value") else sizes.get(dim.dim_param) for dim in shape]


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """Numbers and words; tensors, graphs and long lists mean nothing to an estimate."""
    plain = [a for a in node.attribute if a.type in _ATTRIBUTE_TYPES and not a.ref_attr_name]
    values = {a.name: helper.get_attribute_value(a) for a in plain}
    return {n: _plain(v) for n, v in values.items() if isinstance(v, int | float | bytes) or len(v) <= _LONGEST_LIST}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, int | float) else tuple(_plain(item) for item in value)


def first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]

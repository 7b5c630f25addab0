"""An ONNX file as a flat list of nodes in which every tensor has a known shape and type. Needs the `onnx` package.

Open dimensions are fixed first. Then each node is inferred by itself, in the order of the file: integers that are known
(shapes, axes, counts) are computed at once, and subgraphs are put in the place of the node that holds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnx
from onnx import helper, inliner, numpy_helper, shape_inference

from tonnage.errors import CaptureError, InvalidFile
from tonnage.program import onnx_node
from tonnage.program.onnx_file import Tensor, check_kind, checked_tensor, fix_inputs, read_model
from tonnage.program.onnx_node import Array
from tonnage.program.trace import Attribute

Names: TypeAlias = MutableMapping[str, str]  # a name in the file -> its name in the flat list, where they differ

# Inputs that are read on the host, where they are known there.
_HOST_INPUTS: Mapping[str, frozenset[int]] = {
    **dict.fromkeys(("Reshape", "Expand", "Tile", "Squeeze", "Unsqueeze", "Split", "TopK", "OneHot"), frozenset({1})),
    **dict.fromkeys(("CumSum", "Trilu", "CenterCropPad", "Upsample"), frozenset({1})),
    **dict.fromkeys(("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"), frozenset({1})),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"), frozenset({1})),
    **dict.fromkeys(("Dropout", "Clip"), frozenset({1, 2})),
    "Pad": frozenset({1, 2, 3}), "Resize": frozenset({1, 2, 3}), "Slice": frozenset({1, 2, 3, 4}),
    "Range": frozenset({0, 1, 2}), "ConstantOfShape": frozenset({0}), "NonMaxSuppression": frozenset({2, 3, 4}),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Node:
    """One operator on the GPU; missing optional inputs have empty names."""

    path: str
    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute]


@dataclass(frozen=True, kw_only=True)
class Graph:
    """All of a model. `tensors` tells about every name; `weights` are the constants that nodes read on the GPU."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: tuple[str, ...]
    nodes: tuple[Node, ...]
    tensors: Mapping[str, Tensor]
    parameter_count: int
    warnings: tuple[str, ...]


def read_graph(path: Path, batch: int | None, sizes: Mapping[str, int]) -> Graph:
    """The model in a file, its open dimensions fixed by `batch` (first dimensions of inputs) and `sizes` (by name)."""
    model = read_model(path)
    inputs, bound = fix_inputs(model.graph, path.name, batch, sizes)
    if model.functions:
        model = inliner.inline_local_functions(model, convert_version=True)
    follower = _Follower(model, path, bound)
    follower.tensors.update(inputs)
    names: Names = {}
    follower.follow(model.graph, names)
    outputs = tuple(dict.fromkeys(names.get(output.name, output.name) for output in model.graph.output))
    return follower.graph(tuple(inputs), outputs)


# -- nodes ------------------------------------------------------------------------------------------------------------


class _Follower:
    """Walks through the nodes and remembers what is known of each value."""

    def __init__(self, model: onnx.ModelProto, path: Path, bound: Mapping[str, int]) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._model, self._path, self._bound = model, path, bound
        self._known: dict[str, Array] = {}  # values that are computed on the host
        self._constants: dict[str, int] = {}  # -> how many parameters it holds
        self._weights: dict[str, None] = {}
        self._declared: dict[str, onnx.TypeProto] = {}
        self._nodes: list[Node] = []
        self._warnings: dict[str, None] = {}

    def graph(self, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Graph:
        for name in outputs:
            if name not in self.tensors:
                raise InvalidFile(f"{self._path} promises the output {name}, which nothing computes")
        self._weights.update(dict.fromkeys(n for n in outputs if n in self._constants and n not in self._known))
        return Graph(
            inputs=inputs,
            outputs=tuple(name for name in outputs if name not in self._known),
            weights=tuple(self._weights),
            nodes=tuple(self._nodes),
            tensors=self.tensors,
            parameter_count=sum(self._constants[name] for name in self._weights),
            warnings=tuple(self._warnings),
        )

    def follow(self, graph: onnx.GraphProto, names: Names) -> None:
        for info in (*graph.value_info, *graph.output):
            self._declared[names.get(info.name, info.name)] = info.type
        for tensor in graph.initializer:
            self._keep(names.get(tensor.name, tensor.name), tensor)
        for sparse in graph.sparse_initializer:
            name = names.get(sparse.values.name, sparse.values.name)
            self._keep_tensor(name, checked_tensor(sparse.dims, sparse.values.data_type, f"weight {name}"))
        for node in graph.node:
            self._follow_node(node, names)

    def _follow_node(self, original: onnx.NodeProto, names: Names) -> None:
        try:
            if onnx_node.is_standard(original) and original.op_type == "Constant":
                self._follow_constant(original, names.get(original.output[0], original.output[0]))
            else:
                self._follow_other(original, names)
        except (IndexError, ValueError) as error:
            raise InvalidFile(f"{self._say(original)} is malformed: {onnx_node.first_line(error)}") from None

    def _follow_other(self, original: onnx.NodeProto, names: Names) -> None:
        node = onnx.NodeProto()
        node.CopyFrom(original)
        node.domain = "" if onnx_node.is_standard(node) else node.domain
        node.input[:] = [names.get(name, name) for name in original.input]
        for name in node.input:
            if name and name not in self.tensors:
                raise InvalidFile(f"{self._say(node)} reads {name}, which nothing before it computes")
        control_flow = {"If": self._follow_if, "Loop": self._follow_loop, "Scan": self._follow_scan}
        if not node.domain and node.op_type in control_flow:
            control_flow[node.op_type](node, names)
            return
        node.output[:] = [names.get(name, name) for name in original.output]
        if not node.domain and node.op_type in ("Shape", "Size"):
            self._follow_shape(node)
        else:
            self._follow_operator(node)

    def _follow_constant(self, node: onnx.NodeProto, name: str) -> None:
        attribute = node.attribute[0]
        value = helper.get_attribute_value(attribute)
        if isinstance(value, onnx.TensorProto):
            self._keep(name, value)
        elif isinstance(value, onnx.SparseTensorProto):
            self._keep_tensor(name, checked_tensor(value.dims, value.values.data_type, self._say(node)))
        elif attribute.name in ("value_float", "value_floats"):
            self._learn(name, np.array(value, dtype=np.float32), counts=True)
        elif attribute.name in ("value_int", "value_ints"):
            self._learn(name, np.array(value, dtype=np.int64), counts=True)
        else:
            raise CaptureError(f"{self._say(node)} holds text, which no GPU computes with")

    def _follow_shape(self, node: onnx.NodeProto) -> None:
        shape, part = self.tensors[node.input[0]].shape, onnx_node.attributes(node)
        value = prod(shape) if node.op_type == "Size" else shape[part.get("start") : part.get("end")]
        self._learn(node.output[0], np.array(value, dtype=np.int64))

    def _follow_operator(self, node: onnx.NodeProto) -> None:
        model = onnx_node.alone(node, self.tensors, self._known, self._model)
        inferred = self._infer(node, model)
        values = onnx_node.compute(model, inferred) if all(name in self._known for name in node.input if name) else {}
        if values:
            for name, value in values.items():
                self._learn(name, value)
            return
        for name, kind in zip(node.output, inferred, strict=True):
            if name:
                self.tensors[name] = self._output(node, name, kind)
        if not node.domain and node.op_type == "Reshape":
            self._check_reshape(node)
        self._add(node, tuple(node.input), tuple(node.output))

    def _check_reshape(self, node: onnx.NodeProto) -> None:
        """Shape inference does not count elements, and exporters like to write the example's sizes into the graph."""
        before, after = self.tensors[node.input[0]].shape, self.tensors[node.output[0]].shape
        if prod(before) != prod(after):
            raise CaptureError(
                f"{self._say(node)} cannot turn the shape {before} into {after}",
                "the model was exported for other sizes; use those, or export it with open dimensions",
            )

    def _add(self, node: onnx.NodeProto, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
        on_host = _HOST_INPUTS.get(node.op_type, frozenset())
        attributes = onnx_node.attributes(node)
        if node.op_type.startswith("Reduce") and len(inputs) > 1 and inputs[1] in self._known:
            attributes["axes"] = tuple(self._known[inputs[1]].ravel().tolist())
        for position, name in enumerate(inputs):
            if name in self._constants and not (position in on_host and name in self._known):
                self._weights.setdefault(name)
        path = node.name.strip("/").replace("/", ".") or node.op_type
        self._nodes.append(Node(path, node.op_type, node.domain, inputs, outputs, attributes))

    def _say(self, node: onnx.NodeProto) -> str:
        return f"node {node.name or (node.output[0] if node.output else '?')} ({node.op_type}) of {self._path.name}"

    # -- shapes and values --------------------------------------------------------------------------------------------

    def _infer(self, node: onnx.NodeProto, model: onnx.ModelProto) -> list[onnx.TypeProto]:
        try:
            return onnx_node.infer(model)
        except shape_inference.InferenceError as error:
            raise CaptureError(f"{self._say(node)} cannot be followed: {onnx_node.first_line(error)}") from None

    def _output(self, node: onnx.NodeProto, name: str, inferred: onnx.TypeProto) -> Tensor:
        """What was inferred; where that leaves something open, what the file itself says."""
        declared = self._declared.get(name, onnx.TypeProto())
        what = f"output {name} of {self._say(node)}"
        check_kind(inferred, what)
        check_kind(declared, what)
        elem_type = inferred.tensor_type.elem_type or declared.tensor_type.elem_type
        dims = onnx_node.dims(inferred, {})
        stated = onnx_node.dims(declared, self._bound)
        if dims is None:
            dims = stated
        elif stated is not None and len(stated) == len(dims):
            dims = [said if dim is None else dim for dim, said in zip(dims, stated, strict=True)]
        if not elem_type or dims is None or None in dims:
            raise self._unknown(node, declared)
        return checked_tensor([dim for dim in dims if dim is not None], elem_type, what)

    def _unknown(self, node: onnx.NodeProto, declared: onnx.TypeProto) -> CaptureError:
        reason = onnx_node.why_not(onnx_node.alone(node, self.tensors, self._known, self._model))
        named = [d.dim_param for d in declared.tensor_type.shape.dim if d.dim_param and d.dim_param not in self._bound]
        hint = f"say how large it will be: {' '.join(f'--size {dim}=128' for dim in named)}" if named else ""
        return CaptureError(f"the shape of what {self._say(node)} returns cannot be inferred: {reason}", hint)

    def _learn(self, name: str, value: Array, *, counts: bool = False) -> None:
        self._keep_tensor(name, Tensor(value.shape, helper.np_dtype_to_tensor_dtype(value.dtype)), counts=counts)
        self._known[name] = value

    def _keep(self, name: str, proto: onnx.TensorProto) -> None:
        """A constant of the file. Its value is read if it is small; if it lies in a file that is missing, it is not."""
        tensor = checked_tensor(proto.dims, proto.data_type, f"weight {name}")
        self._keep_tensor(name, tensor)
        if not onnx_node.worth_knowing(tensor.shape, tensor.elem_type):
            return
        try:
            self._known[name] = numpy_helper.to_array(proto, base_dir=str(self._path.parent))
        except (OSError, ValueError, TypeError, RuntimeError, onnx.checker.ValidationError):
            if proto.data_location != onnx.TensorProto.EXTERNAL:
                raise InvalidFile(f"the value of {name} in {self._path} is damaged") from None

    def _keep_tensor(self, name: str, tensor: Tensor, *, counts: bool = True) -> None:
        self.tensors[name] = tensor
        self._constants[name] = prod(tensor.shape) if counts else 0

    # -- subgraphs ----------------------------------------------------------------------------------------------------

    def _follow_if(self, node: onnx.NodeProto, names: Names) -> None:
        condition = self._known.get(node.input[0])
        branches = [(label, self._subgraph(node, f"{label}_branch")) for label in ("then", "else")]
        if condition is not None:
            branches = [branches[0] if bool(condition.all()) else branches[1]]
        followed = []
        for label, graph in branches:
            start, inner = len(self._nodes), self._scope(graph, f"{self._flat(node, names)}:{label}", names)
            self.follow(graph, inner)
            followed.append((self._nodes[start:], [inner.get(output.name, output.name) for output in graph.output]))
            del self._nodes[start:]
        if condition is None:
            self._warn(f"{self._say(node)}: the branch with the larger tensors was followed")
        nodes, outputs = max(followed, key=lambda branch: self._made_bytes(branch[0]))
        self._nodes.extend(nodes)
        names.update(zip(node.output, outputs, strict=True))

    def _follow_loop(self, node: onnx.NodeProto, names: Names) -> None:
        body = self._subgraph(node, "body")
        inner = self._scope(body, self._flat(node, names), names)
        for info in body.input[:2]:
            self.tensors[inner[info.name]] = checked_tensor((), info.type.tensor_type.elem_type, f"input {info.name}")
        carried = list(node.input[2:])
        self._carry([info.name for info in body.input[2:]], carried, inner)
        count = self._known.get(node.input[0]) if node.input[0] else None
        self._follow_body(node, body, inner, names, carried, 1, None if count is None else int(count.ravel()[0]), ())

    def _follow_scan(self, node: onnx.NodeProto, names: Names) -> None:
        body, attributes = self._subgraph(node, "body"), onnx_node.attributes(node)
        inner = self._scope(body, self._flat(node, names), names)
        scanned = int(attributes.get("num_scan_inputs", 0))
        if not scanned or len(node.input) != len(body.input):
            raise CaptureError(f"{self._say(node)} is not a scan of operator set 9 or later, and cannot be followed")
        split = len(node.input) - scanned
        carried = list(node.input[:split])
        self._carry([info.name for info in body.input[:split]], carried, inner)
        axes = attributes.get("scan_input_axes") or (0,) * scanned
        count = 0
        for info, name, axis in zip(body.input[split:], node.input[split:], axes, strict=True):
            shape = list(self.tensors[name].shape)
            count = shape.pop(axis)
            self.tensors[inner[info.name]] = Tensor(tuple(shape), self.tensors[name].elem_type)
            self._add(helper.make_node("Identity", [], [], name=node.name), (name,), (inner[info.name],))
        self._follow_body(node, body, inner, names, carried, 0, count, attributes.get("scan_output_axes") or ())

    def _carry(self, locals_: Iterable[str], carried: Sequence[str], inner: Names) -> None:
        """State of a loop: the value itself, but of one that is known only the shape, since it will change."""
        for local, name in zip(locals_, carried, strict=True):
            if name in self._known:
                self.tensors[inner[local]] = self.tensors[name]
            else:
                inner[local] = name

    def _follow_body(
        self,
        node: onnx.NodeProto,
        body: onnx.GraphProto,
        inner: Names,
        names: Names,
        carried: Sequence[str],
        skipped: int,
        count: int | None,
        axes: Sequence[int],
    ) -> None:
        """One iteration; then what was collected over all of them."""
        self.follow(body, inner)
        self._warn(f"{self._say(node)}: one iteration was followed, as if it were the only one")
        outputs = [inner.get(output.name, output.name) for output in body.output][skipped:]
        for before, after in zip(carried, outputs, strict=False):
            if self.tensors[before].shape != self.tensors[after].shape:
                self._warn(f"{self._say(node)}: the shape of {before} changes from one iteration to the next")
        names.update(zip(node.output, outputs[: len(carried)], strict=False))
        collected, parts = node.output[len(carried) :], outputs[len(carried) :]
        stacked = []
        for position, (name, part) in enumerate(zip(collected, parts, strict=True)):
            stacked.append(names.get(name, name))
            if count is None:
                self.tensors[stacked[-1]] = self._output(node, stacked[-1], onnx.TypeProto())
                continue
            shape = list(self.tensors[part].shape)
            axis = axes[position] if axes else 0
            shape.insert(axis if axis >= 0 else axis + len(shape) + 1, count)
            self.tensors[stacked[-1]] = checked_tensor(shape, self.tensors[part].elem_type, f"output {name}")
        if stacked:
            self._add(node, tuple(parts), tuple(stacked))

    def _subgraph(self, node: onnx.NodeProto, name: str) -> onnx.GraphProto:
        for attribute in node.attribute:
            if attribute.name == name and attribute.HasField("g"):
                graph: onnx.GraphProto = attribute.g
                return graph
        raise InvalidFile(f"{self._say(node)} has no {name}")

    def _scope(self, graph: onnx.GraphProto, prefix: str, outer: Names) -> Names:
        """Names inside a subgraph: its own are made unique, others are those outside."""
        own = [info.name for info in graph.input] + [tensor.name for tensor in graph.initializer]
        own += [tensor.values.name for tensor in graph.sparse_initializer]
        own += [name for node in graph.node for name in node.output if name]
        return {**outer, **{name: f"{prefix}/{name}" for name in own}}

    def _flat(self, node: onnx.NodeProto, names: Names) -> str:
        first = next(filter(None, node.output), node.name)
        return names.get(first, first)

    def _made_bytes(self, nodes: Iterable[Node]) -> int:
        return sum(self.tensors[name].nbytes for node in nodes for name in node.outputs if name)

    def _warn(self, text: str) -> None:
        self._warnings.setdefault(text)

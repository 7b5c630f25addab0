"""The same small models for two servers: as ONNX files, and as Python for Triton's Python backend."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ONNX_TYPES = {
    "BOOL": TensorProto.BOOL, "UINT8": TensorProto.UINT8, "UINT16": TensorProto.UINT16, "UINT32": TensorProto.UINT32,
    "UINT64": TensorProto.UINT64, "INT8": TensorProto.INT8, "INT16": TensorProto.INT16, "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64, "FP16": TensorProto.FLOAT16, "FP32": TensorProto.FLOAT, "FP64": TensorProto.DOUBLE,
    "BF16": TensorProto.BFLOAT16, "BYTES": TensorProto.STRING,
}  # fmt: skip
LABELS = ("cat", "dog", "bird", "fish")
# Triton runs this; what it does is told by the parameter `work` of the configuration.
PYTHON_MODEL = """
import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        configuration = json.loads(args["model_config"])
        self.work = configuration["parameters"]["work"]["string_value"]
        self.given = [each["name"] for each in configuration["input"]]
        self.made = [each["name"] for each in configuration["output"]]
        self.version = int(args["model_version"])

    def execute(self, requests):
        return [pb_utils.InferenceResponse(self.answer(request)) for request in requests]

    def answer(self, request):
        given = [pb_utils.get_input_tensor_by_name(request, name) for name in self.given]
        if self.work == "identity":
            return [pb_utils.Tensor.from_dlpack(self.made[0], given[0].to_dlpack())]
        arrays = [each.as_numpy() for each in given]
        if self.work == "strings":
            made = arrays
        elif self.work == "add_sub":
            made = [arrays[0] + arrays[1], arrays[0] - arrays[1]]
        else:
            made = [arrays[0] + np.array(self.version, arrays[0].dtype)]
        return [pb_utils.Tensor(name, array) for name, array in zip(self.made, made)]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin:
    """A model of both servers. `dims` are without the batch; `work` is what its outputs are."""

    name: str
    datatype: str
    dims: tuple[int, ...]
    most_rows: int = 0  # 0: no batches
    work: str = "identity"
    inputs: tuple[str, ...] = ("x",)
    outputs: tuple[str, ...] = ("y",)
    versions: tuple[int, ...] = (1,)
    served: tuple[int, ...] = (1,)
    reshape: tuple[int, ...] | None = None
    labels: bool = False
    batching: str = ""

    def configuration(self, backend: str) -> str:
        kind = "TYPE_STRING" if self.datatype == "BYTES" else f"TYPE_{self.datatype}"
        shape = f"data_type: {kind} dims: {list(self.dims)}"
        if self.reshape is not None:
            shape += f" reshape {{ shape: {list(self.reshape)} }}"
        lines = [f'backend: "{backend}"', f"max_batch_size: {self.most_rows}", self.batching]
        lines += [f'input {{ name: "{name}" {shape} }}' for name in self.inputs]
        labels = 'label_filename: "labels.txt"' if self.labels else ""
        lines += [f'output {{ name: "{name}" {shape} {labels} }}' for name in self.outputs]
        lines += [f"version_policy {{ specific {{ versions: {list(self.served)} }} }}"]
        work = "strings" if self.datatype == "BYTES" else self.work
        lines += ["instance_group { count: 1 kind: KIND_CPU }"]
        return "\n".join([*lines, f'parameters {{ key: "work" value {{ string_value: "{work}" }} }}', ""])


TWINS: tuple[Twin, ...] = (
    *(Twin(name=f"same_{kind.lower()}", datatype=kind, dims=(-1, 2)) for kind in ONNX_TYPES),
    Twin(
        name="add_sub", datatype="FP32", dims=(4,), most_rows=8, work="add_sub", inputs=("INPUT0", "INPUT1"),
        outputs=("OUTPUT0", "OUTPUT1"), batching="dynamic_batching { }",
    ),
    Twin(
        name="add_sub_int", datatype="INT32", dims=(2, 3), work="add_sub", inputs=("INPUT0", "INPUT1"),
        outputs=("OUTPUT0", "OUTPUT1"),
    ),
    Twin(name="scores", datatype="FP32", dims=(4,), most_rows=4, labels=True),
    Twin(name="counts", datatype="INT32", dims=(5,)),
    Twin(name="words", datatype="BYTES", dims=(2,), most_rows=4),
    Twin(name="reshaped", datatype="FP32", dims=(1,), most_rows=4, reshape=()),
    Twin(
        name="versions", datatype="FP32", dims=(3,), work="plus_version", versions=(1, 2, 3), served=(1, 3)
    ),
)  # fmt: skip


def make_repositories(ours: Path, theirs: Path, twins: Sequence[Twin] = TWINS) -> None:
    for twin in twins:
        for root, backend in ((ours, "onnxruntime"), (theirs, "python")):
            folder = root / twin.name
            folder.mkdir(parents=True)
            (folder / "config.pbtxt").write_text(twin.configuration(backend))
            (folder / "labels.txt").write_text("\n".join(LABELS) + "\n")
        for version in twin.versions:
            (theirs / twin.name / str(version)).mkdir()
            (theirs / twin.name / str(version) / "model.py").write_text(PYTHON_MODEL)
            (ours / twin.name / str(version)).mkdir()
            onnx.save(_onnx(twin, version), ours / twin.name / str(version) / "model.onnx")


def _onnx(twin: Twin, version: int) -> onnx.ModelProto:
    dims = twin.dims if twin.reshape is None else twin.reshape
    sizes: list[int | str] = [f"size_{place}" if size < 0 else size for place, size in enumerate(dims)]
    if twin.most_rows:
        sizes.insert(0, "rows")
    kind = ONNX_TYPES[twin.datatype]
    constants = []
    if twin.work == "add_sub":
        nodes = [helper.make_node(op, twin.inputs, [out]) for op, out in zip(("Add", "Sub"), twin.outputs, strict=True)]
    elif twin.work == "plus_version":
        constants = [numpy_helper.from_array(np.array(version, np.float32), "version")]
        nodes = [helper.make_node("Add", [twin.inputs[0], "version"], twin.outputs)]
    else:
        nodes = [helper.make_node("Identity", twin.inputs, twin.outputs)]
    given = [helper.make_tensor_value_info(name, kind, sizes) for name in twin.inputs]
    made = [helper.make_tensor_value_info(name, kind, sizes) for name in twin.outputs]
    graph = helper.make_graph(nodes, twin.name, given, made, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

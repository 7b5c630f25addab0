"""Small models of every kind that is served, and a repository of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

sys.path.append(str(Path(__file__).parents[1] / "program" / "caffe"))

# The protocol's datatypes as ONNX calls them.
ONNX_TYPES = {
    "BOOL": TensorProto.BOOL, "UINT8": TensorProto.UINT8, "UINT16": TensorProto.UINT16, "UINT32": TensorProto.UINT32,
    "UINT64": TensorProto.UINT64, "INT8": TensorProto.INT8, "INT16": TensorProto.INT16, "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64, "FP16": TensorProto.FLOAT16, "FP32": TensorProto.FLOAT, "FP64": TensorProto.DOUBLE,
    "BF16": TensorProto.BFLOAT16, "BYTES": TensorProto.STRING,
}  # fmt: skip
Sizes = Sequence[int | str]
CLASSES = ("cat", "dog", "bird", "fish")
SCRIPT_CONFIGURATION = """
platform: "pytorch_libtorch"
max_batch_size: 4
input { name: "x" data_type: TYPE_FP32 dims: [3] }
output { name: "y" data_type: TYPE_FP32 dims: [3] }
"""
SCORES_CONFIGURATION = """
max_batch_size: 4
input { name: "x" data_type: TYPE_FP32 dims: [4] }
output { name: "y" data_type: TYPE_FP32 dims: [4] label_filename: "labels.txt" }
dynamic_batching { priority_levels: 3 default_priority_level: 2 default_queue_policy { allow_timeout_override: true } }
"""
CAFFE_TEXT = """
name: "net"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 4 } } }
layer { name: "fc" type: "InnerProduct" bottom: "data" top: "fc" inner_product_param { num_output: 3 } }
layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob" }
"""


def onnx_model(path: Path, nodes: Sequence[tuple[str, str, str]], given: dict[str, tuple[str, Sizes]]) -> None:
    """Nodes are operator, inputs and output, names parted by blanks. Outputs have the type and shape of the first input
    of their node."""
    made = {}
    for _, names, output in nodes:
        made[output] = given[names.split()[0]]
    graph = helper.make_graph(
        [helper.make_node(operator, names.split(), [output]) for operator, names, output in nodes],
        "graph",
        [helper.make_tensor_value_info(name, ONNX_TYPES[kind], sizes) for name, (kind, sizes) in given.items()],
        [helper.make_tensor_value_info(name, ONNX_TYPES[kind], sizes) for name, (kind, sizes) in made.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)


def every_type(folder: Path) -> None:
    """One input and one output of every datatype but BF16; the outputs are the inputs."""
    _identity(folder, [kind for kind in ONNX_TYPES if kind != "BF16"])


def halves(folder: Path) -> None:
    """BF16 beside another datatype."""
    _identity(folder, ["BF16", "INT32"])


def add_sub(folder: Path) -> None:
    """Two inputs, two outputs, and batches: the first axis is open."""
    given: dict[str, tuple[str, Sizes]] = {"INPUT0": ("FP32", ["n", 4]), "INPUT1": ("FP32", ["n", 4])}
    nodes = [("Add", "INPUT0 INPUT1", "OUTPUT0"), ("Sub", "INPUT0 INPUT1", "OUTPUT1")]
    onnx_model(folder / "1/model.onnx", nodes, given)


def fixed(folder: Path) -> None:
    """No batches: every size is told."""
    onnx_model(folder / "1/model.onnx", [("Add", "x x", "y")], {"x": ("INT32", [2, 3])})


def long(folder: Path) -> None:
    """As many numbers as a client likes, and none as well."""
    onnx_model(folder / "1/model.onnx", [("Neg", "x", "y")], {"x": ("FP32", ["n"])})
    (folder / "config.yaml").write_text(
        "max_batch_size: 0\ninput: {name: x, data_type: TYPE_FP32, dims: [-1]}\n"
        "output: {name: y, data_type: TYPE_FP32, dims: [-1]}\n"
    )


def scores(folder: Path) -> None:
    """Scores of four classes that have names; three priorities."""
    onnx_model(folder / "1/model.onnx", [("Identity", "x", "y")], {"x": ("FP32", ["n", 4])})
    (folder / "config.pbtxt").write_text(SCORES_CONFIGURATION)
    (folder / "labels.txt").write_text("\n".join(CLASSES) + "\n")


def two_versions(folder: Path) -> None:
    """The first doubles, the second negates; both are served."""
    onnx_model(folder / "1/model.onnx", [("Add", "x x", "y")], {"x": ("FP32", [2])})
    onnx_model(folder / "2/model.onnx", [("Neg", "x", "y")], {"x": ("FP32", [2])})
    (folder / "config.pbtxt").write_text("version_policy { all { } }\n")


def exported(folder: Path) -> None:
    """A file of torch.export in the datatype that numpy lacks, and with an open first axis."""
    import torch

    class Doubled(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + x

    rows = torch.export.Dim("rows", min=1, max=64)
    program = torch.export.export(
        Doubled(), (torch.zeros(2, 3, dtype=torch.bfloat16),), dynamic_shapes={"x": {0: rows}}
    )
    (folder / "1").mkdir(parents=True)
    torch.export.save(program, folder / "1/model.pt2")


def scripted(folder: Path) -> None:
    """A TorchScript file, whose tensors only the configuration knows."""
    import torch

    module = torch.jit.trace(torch.nn.ReLU(), torch.zeros(2, 3))
    (folder / "1").mkdir(parents=True)
    module.save(str(folder / "1/model.pt"))
    (folder / "config.pbtxt").write_text(SCRIPT_CONFIGURATION)


def caffe(folder: Path) -> np.ndarray:
    """A classifier of three classes; returns its weights."""
    from caffe_files import caffemodel

    weights = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    (folder / "1").mkdir(parents=True)
    (folder / "1/model.prototxt").write_text(CAFFE_TEXT)
    (folder / "1/model.caffemodel").write_bytes(caffemodel({"fc": [weights, np.zeros(3, np.float32)]}))
    return weights


def make_repository(path: Path) -> Path:
    """All of the above, each under the name of its function."""
    for make in (every_type, halves, add_sub, fixed, long, scores, two_versions, exported, scripted, caffe):
        make(path / make.__name__)
    return path


def _identity(folder: Path, kinds: Sequence[str]) -> None:
    nodes = [("Identity", f"in_{kind}", f"out_{kind}") for kind in kinds]
    onnx_model(folder / "1/model.onnx", nodes, {f"in_{kind}": (kind, ["a", 2]) for kind in kinds})
    (folder / "config.pbtxt").write_text("max_batch_size: 0\n" + "".join(map(_described, kinds)))


def _described(kind: str) -> str:
    name = "TYPE_STRING" if kind == "BYTES" else f"TYPE_{kind}"
    return (
        f'input {{ name: "in_{kind}" data_type: {name} dims: [-1, 2] }}\n'
        f'output {{ name: "out_{kind}" data_type: {name} dims: [-1, 2] }}\n'
    )

"""Small models in a folder, and the server as users start it."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import onnx
from onnx import TensorProto, helper

Shape: TypeAlias = "list[int | str]"


def save_onnx(
    version: Path, operator: str, kind: int, shape: Shape, made_shape: Shape | None = None, **attributes: Any
) -> None:
    """A model of one operator, from `x` to `y`."""
    given = helper.make_tensor_value_info("x", kind, shape)
    made = helper.make_tensor_value_info("y", kind, shape if made_shape is None else made_shape)
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"], **attributes)], "small", [given], [made])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    version.mkdir(parents=True, exist_ok=True)
    onnx.save(model, version / "model.onnx")


def save_caffe(version: Path, sizes: tuple[int, ...] = (1, 3, 8, 8)) -> None:
    """Three shares, one of each channel."""
    dims = " ".join(f"dim: {size}" for size in sizes)
    layers = [
        'layer { name: "mean" type: "Pooling" bottom: "data" top: "mean"',
        "pooling_param { pool: AVE global_pooling: true } }",
        'layer { name: "scale" type: "Scale" bottom: "mean" top: "scale" }',
        'layer { name: "prob" type: "Softmax" bottom: "scale" top: "prob" }',
    ]
    version.mkdir(parents=True, exist_ok=True)
    lines = ['name: "shares"', 'input: "data"', f"input_shape {{ {dims} }}", *layers]
    (version / "model.prototxt").write_text("\n".join(lines))
    blob = b"\x3a\x03\x0a\x01\x03" + b"\x2a\x0c" + struct.pack("<3f", 1, 1, 1)  # its shape, its numbers
    layer = b"\x0a\x05scale" + b"\x3a" + bytes([len(blob)]) + blob  # its name, its only blob
    (version / "model.caffemodel").write_bytes(b"\xa2\x06" + bytes([len(layer)]) + layer)


def save_rows(folder: Path, name: str = "rows") -> None:
    """Any number of rows of four numbers, each with its softmax."""
    save_onnx(folder / name / "1", "Softmax", TensorProto.FLOAT, ["rows", 4], axis=1)


@dataclass(frozen=True)
class Running:
    process: subprocess.Popen[str]
    http: str
    metrics: str

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.http}{path}") as answer:
            return json.load(answer)

    def infer(self, model: str, data: list[float], shape: list[int], name: str = "x") -> Any:
        inputs = [{"name": name, "datatype": "FP32", "shape": shape, "data": data}]
        body = json.dumps({"inputs": inputs}).encode()
        with urllib.request.urlopen(f"{self.http}/v2/models/{model}/infer", body) as answer:
            return json.load(answer)


@contextmanager
def running(folder: Path, *options: str) -> Iterator[Running]:
    """The server in a process of its own, on ports that are free."""
    ports = ["--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"]
    command = [sys.executable, "-m", "tonnage", "serve", str(folder), *ports, *options]
    environment = os.environ | {"NO_COLOR": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            told: dict[str, str] = {}
            assert process.stderr is not None
            for line in process.stderr:
                name, at, address = line.strip().partition(" at ")
                if at and name in ("REST", "gRPC", "metrics"):
                    told[name] = address
                if name == "metrics":
                    break
            assert len(told) == 3, "the server has ended before it was ready"
            yield Running(process, told["REST"], told["metrics"])
        finally:
            process.terminate()
            process.wait(30)

"""Small models of each kind, made here."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT


def version(folder: Path, model: str, number: int = 1, configuration: str = "") -> Path:
    """The folder of a version, which is made, with a config.pbtxt beside it."""
    path = folder / model / str(number)
    path.mkdir(parents=True, exist_ok=True)
    if configuration:
        (folder / model / "config.pbtxt").write_text(configuration)
    return path


def graph(nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: dict[str, Any] | None = None) -> Any:
    initializers = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    made = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def value(name: str, shape: list[int | str | None], kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def save_sum(file: Path, first: int | str = "batch", factor: float = 1.0) -> None:
    """y = factor * (a + b), rows of three."""
    import numpy as np

    nodes = [helper.make_node("Add", ["a", "b"], ["s"]), helper.make_node("Mul", ["s", "f"], ["y"])]
    made = graph(
        nodes,
        [value("a", [first, 3]), value("b", [first, 3])],
        [value("y", [first, 3])],
        {"f": np.float32([factor])},
    )
    onnx.save(made, file)


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor([2.0]))

    def forward(self, x: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
        return x * self.factor + offset


class Named(torch.nn.Module):
    """A dictionary in, a dictionary out."""

    def forward(self, batch: dict[str, torch.Tensor], scale: float = 2.0) -> dict[str, torch.Tensor]:
        return {"sum": batch["left"] + batch["right"], "left_scaled": batch["left"] * scale}


class WithDefault(torch.nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        if mask is None:
            return x, x + 1
        return x * mask, x + 1


def save_exported(file: Path, module: torch.nn.Module, arguments: tuple[Any, ...], dynamic: Any = None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(module.eval(), arguments, dynamic_shapes=dynamic)
        torch.export.save(program, file)


def save_scripted(file: Path, module: torch.nn.Module) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(module.eval()).save(str(file))

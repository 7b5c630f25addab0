"""What runs models: one module for each kind of file, loaded where a model of that kind is."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from tonnage.errors import InvalidFile, MissingDependency
from tonnage.serve.configuration import ModelConfiguration, TensorSpec

Arrays = dict[str, npt.NDArray[Any]]

# The usual files of a version's folder, and who runs them.
FILES = {
    "model.onnx": "onnxruntime",
    "model.pt2": "pytorch",
    "model.pt": "pytorch",
    "model.prototxt": "caffe",
}
_MODULES = {"onnxruntime": "onnx_runtime", "pytorch": "torch_runtime", "caffe": "caffe_runtime"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOrder:
    """What an instance shall load. The configuration may leave tensors to the file."""

    backend: str
    path: str
    configuration: ModelConfiguration
    device: str = "cpu"  # or cuda:0
    threads: int = 1

    def setting(self, name: str, default: int) -> int:
        """A number among the parameters of the configuration."""
        text = self.configuration.parameters.get(name, "")
        try:
            return int(text) if text else default
        except ValueError:
            raise InvalidFile(f"parameter {name} of {self.configuration.name} is {text!r}, not a number") from None


class Runtime(Protocol):
    """A model that is loaded. Shapes of its tensors are whole: with the axis of the batch, if there is one."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]: ...

    @property
    def outputs(self) -> tuple[TensorSpec, ...]: ...

    @property
    def batch_axis(self) -> bool:
        """Is the first axis of all tensors of any size, and the same?"""
        ...

    def run(self, inputs: Arrays, wanted: tuple[str, ...]) -> Arrays:
        """The wanted outputs, as contiguous arrays. What is wrong with the inputs raises `UsageError`."""
        ...


def load_runtime(order: LoadOrder) -> Runtime:
    try:
        module = import_module(f"tonnage.serve.runtimes.{_MODULES[order.backend]}")
    except ModuleNotFoundError as error:
        message = f"models of {order.backend} need the package {error.name}"
        raise MissingDependency(message, f"pip install {error.name}") from None
    runtime: Runtime = module.load(order)
    return runtime


def find_model_file(folder: Path, name: str = "") -> tuple[str, Path]:
    """Who runs the model of a version's folder, and its file."""
    if name:
        path = folder / name
        backend = {".onnx": "onnxruntime", ".pt2": "pytorch", ".pt": "pytorch", ".prototxt": "caffe"}.get(
            path.suffix, ""
        )
        if not path.exists():
            raise InvalidFile(f"{folder} has no {name}, which its configuration names")
        return backend, path
    for usual, backend in FILES.items():
        if (folder / usual).exists():
            return backend, folder / usual
    raise InvalidFile(f"{folder} has no model", f"expected one of {', '.join(FILES)}")

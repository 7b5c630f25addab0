"""What runs models: one module for each kind of file, loaded where a model of that kind is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
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
# What they need, which takes long to import.
PACKAGES = {"onnxruntime": "onnxruntime", "pytorch": "torch", "caffe": "torch"}
_SUFFIXES = {Path(file).suffix: backend for file, backend in FILES.items()}
_MOST_WORDS = 500
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
    """A model that is loaded. Shapes of its tensors are whole: with the axis of the batch, if there is one. Inputs that
    are optional have a value in the file."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]: ...

    @property
    def outputs(self) -> tuple[TensorSpec, ...]: ...

    @property
    def batch_axis(self) -> bool:
        """Is the first axis of all tensors of any size, and the same?"""
        ...

    @property
    def most_rows(self) -> int:
        """The largest batch that the file allows; 0 where it does not say."""
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
    if any(spec.reshape is not None for spec in order.configuration.outputs):
        reshaping = import_module("tonnage.serve.runtimes.reshaping")
        runtime = reshaping.Reshaped(runtime, order.configuration)
    return runtime


def find_model_file(folder: Path, name: str = "", backend: str = "") -> tuple[str, Path]:
    """Who runs the model of a version's folder, and its file. Raises `InvalidFile`."""
    if name:
        return _named_file(folder, name, backend)
    usual = [file for file, runs in FILES.items() if backend in ("", runs)]
    for file in usual:
        if (folder / file).is_file():
            return FILES[file], folder / file
    raise InvalidFile(f"{folder} has no model", f"expected {' or '.join(usual)}")


def with_model_file(configuration: ModelConfiguration, folder: Path) -> tuple[ModelConfiguration, Path]:
    """The configuration with what it leaves out about the file of the model, and that file in a version's folder."""
    backend, path = find_model_file(folder, configuration.file_name, configuration.backend)
    try:
        path.open("rb").close()
    except OSError as error:
        raise InvalidFile(f"{path} cannot be read: {error.strerror}") from None
    return replace(configuration, backend=backend, file_name=path.name), path


def _named_file(folder: Path, name: str, backend: str) -> tuple[str, Path]:
    path = folder / name
    if ".." in path.parts or Path(name).is_absolute() or "\0" in name or not path.is_file():
        raise InvalidFile(f"{folder} has no file {name!r}, which its configuration names as default_model_filename")
    found = backend or _SUFFIXES.get(path.suffix, "")
    if not found:
        raise InvalidFile(f"{path}: who runs it is not known by its name", "name a backend in the configuration")
    return found, path


def sentence(error: Exception) -> str:
    """What a library says, in one line."""
    return " ".join(str(error).split())[:_MOST_WORDS]


def shares_first_axis(shapes: Iterable[Sequence[int | str | None]]) -> bool:
    """Is the first axis of all tensors of the same open size, which no other axis has? Open sizes are names."""
    every = list(shapes)
    first = {shape[0] if shape else None for shape in every}
    others = {size for shape in every for size in shape[1:]}
    return len(first) == 1 and isinstance(next(iter(first)), str) and not first & others

"""Files of TorchScript (.pt). They say how many tensors they take, but neither their shapes nor their types: the
configuration does."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch

from tonnage.errors import InvalidFile
from tonnage.serve.configuration import TensorSpec
from tonnage.serve.datatypes import BYTES
from tonnage.serve.runtimes import LoadOrder, sentence
from tonnage.serve.runtimes.torch_runtime import TorchRuntime, numbers_behind


def load(order: LoadOrder) -> TorchRuntime:
    path, settings = Path(order.path), order.configuration
    module = _read(path, order.device)
    if not settings.inputs or not settings.outputs:
        raise InvalidFile(
            f"{path} does not tell the shapes of its tensors, as no file of TorchScript does",
            "name input and output in config.pbtxt, or save the model with torch.export",
        )
    inputs = [_whole(spec, settings.has_batches) for spec in settings.inputs]
    outputs = tuple(_whole(spec, settings.has_batches) for spec in settings.outputs)
    arguments = module.forward.schema.arguments[1:]  # without `self`
    if len(arguments) == 1 and str(arguments[0].type).startswith("Dict[str, Tensor]"):
        names = [spec.name for spec in inputs]

        def call(*tensors: torch.Tensor | None) -> Any:
            return module({name: each for name, each in zip(names, tensors, strict=True) if each is not None})
    else:
        inputs, taken = _in_order(inputs, arguments, path)

        def call(*tensors: torch.Tensor | None) -> Any:
            return module(**{name: each for name, each in zip(taken, tensors, strict=True) if each is not None})

    return TorchRuntime(call, tuple(inputs), outputs, batch_axis=settings.has_batches, device=order.device)


def _read(path: Path, device: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # it is, and these files are still about
            return torch.jit.load(str(path), map_location=device).eval()  # type: ignore[no-untyped-call]
    except Exception as error:  # zip, pickle, an operator that is not here: each has its own class
        raise InvalidFile(
            f"{path} is not a file of TorchScript: {sentence(error)}",
            "save the model with torch.jit.script and .save, or with torch.export as model.pt2",
        ) from error


def _in_order(specs: list[TensorSpec], arguments: list[Any], path: Path) -> tuple[list[TensorSpec], list[str]]:
    """The inputs, and the argument of `forward` that each is: by their names, else by the numbers behind two underscores,
    else as they stand."""
    names = [argument.name for argument in arguments]
    numbers = numbers_behind([spec.name for spec in specs])
    if {spec.name for spec in specs} <= set(names):
        taken = [spec.name for spec in specs]
    elif len(specs) > len(names) or (numbers is not None and max(numbers) >= len(names)):
        told = ", ".join(spec.name for spec in specs)
        raise InvalidFile(f"{path} takes {', '.join(names) or 'nothing'}; its configuration names the inputs {told}")
    else:
        taken = names[: len(specs)] if numbers is None else [names[number] for number in numbers]
    needed = [
        argument.name for argument in arguments if not argument.has_default_value() and argument.name not in taken
    ]
    if needed:
        raise InvalidFile(f"{path} needs {needed[0]}, which its configuration does not name among the inputs")
    return specs, taken


def _whole(spec: TensorSpec, has_batches: bool) -> TensorSpec:
    if spec.datatype == BYTES:
        raise InvalidFile(f"{spec.name} is a string, which PyTorch models do not take")
    dims = spec.dims if spec.reshape is None else spec.reshape
    dims = (-1, *dims) if has_batches else dims
    return TensorSpec(name=spec.name, datatype=spec.datatype, dims=dims, optional=spec.optional)

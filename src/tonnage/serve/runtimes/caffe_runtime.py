"""Caffe models, by this package's own reader."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from tonnage.errors import InvalidFile, TonnageError
from tonnage.program.caffe import Model
from tonnage.program.caffe import load as load_model
from tonnage.program.caffe.front import depends_on_values, why_no_batches
from tonnage.program.caffe.layer import Shape, shown
from tonnage.program.caffe.network import reshaped
from tonnage.serve.configuration import ModelConfiguration, TensorSpec
from tonnage.serve.runtimes import LoadOrder
from tonnage.serve.runtimes.torch_runtime import TorchRuntime

_ROWS_FOUND = 2  # the axis of what is detected


@dataclass(frozen=True, slots=True)
class _Tensors:
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


def load(order: LoadOrder) -> TorchRuntime:
    """Shapes are those of the prototxt, except where the configuration says otherwise: sizes that it gives count, those
    that it leaves open (-1) may vary, and with batches the first axis does."""
    torch.set_num_threads(order.setting("intra_op_thread_count", order.threads))
    path, settings = Path(order.path), order.configuration
    weights = path.with_suffix(".caffemodel")
    if not weights.exists():
        raise InvalidFile(f"{path.parent} has no {weights.name}", "the weights lie beside the prototxt")
    model = load_model(path, weights, batch=1 if settings.has_batches else None)
    model = _sized(model, settings, path, weights)
    if settings.has_batches and (why := why_no_batches(model.network)):
        raise InvalidFile(f"{settings.name} cannot run in batches: {why}", "set max_batch_size to 0")
    tensors = _tensors(model, settings)
    module = model.module(order.device, most_batch=settings.max_batch_size or None)
    runtime = TorchRuntime(
        module, tensors.inputs, tensors.outputs, batch_axis=settings.has_batches, device=order.device
    )
    ways = module.fast.chosen if module.fast is not None else {}
    runtime.note = "; ".join(f"{', '.join(map(shown, shapes))}: {way}" for shapes, way in ways.items())
    return runtime


def _sized(model: Model, settings: ModelConfiguration, path: Path, weights: Path) -> Model:
    """For the sizes that the configuration gives."""
    shapes = {name: _chosen(shape, _told(settings, name)) for name, shape in model.inputs.items()}
    return model if shapes == model.inputs else load_model(path, weights, shapes=shapes)


def _told(settings: ModelConfiguration, name: str) -> Shape | None:
    """The whole shape of an input as the configuration has it; its batch is 1."""
    spec = next((each for each in settings.inputs if each.name == name), None)
    if spec is None:
        return None
    dims = spec.dims if spec.reshape is None else spec.reshape
    return (1, *dims) if settings.has_batches else dims


def _chosen(shape: Shape, told: Shape | None) -> Shape:
    if told is None or len(told) != len(shape):
        return shape  # a rank that differs is told of where both are compared
    return tuple(size if dim == -1 else dim for size, dim in zip(shape, told, strict=True))


# -- which sizes vary -------------------------------------------------------------------------------------------------


def _tensors(model: Model, settings: ModelConfiguration) -> _Tensors:
    """Inputs and outputs, with -1 for what varies: with the batch, sizes that clients choose, or what is found."""
    network = model.network
    free = {name: _free(shape, _told(settings, name)) for name, shape in model.inputs.items()}
    outputs = dict(model.outputs)
    for name, axes in free.items():
        for axis in axes:
            outputs = _where_same(outputs, _enlarged(model, name, axis))
    later = depends_on_values(network)
    for name, number in network.outputs.items():
        if number in later:
            outputs[name] = tuple(-1 if axis == _ROWS_FOUND else size for axis, size in enumerate(outputs[name]))
    given = {
        name: tuple(-1 if axis in free[name] else size for axis, size in enumerate(shape))
        for name, shape in model.inputs.items()
    }
    return _Tensors(_specs(given, settings.has_batches), _specs(outputs, settings.has_batches))


def _free(shape: Shape, told: Shape | None) -> list[int]:
    return [] if told is None or len(told) != len(shape) else [axis for axis, dim in enumerate(told) if dim == -1]


def _enlarged(model: Model, name: str, axis: int) -> dict[str, Shape]:
    """The shapes of outputs if one axis of an input were twice as large; raises `InvalidFile` where it cannot be."""
    shape = model.inputs[name]
    larger = tuple(2 * size if place == axis else size for place, size in enumerate(shape))
    try:
        return reshaped(model.network, {name: larger}).output_shapes
    except TonnageError as error:
        raise InvalidFile(
            f"input {name} is {shown(shape)} and cannot vary along axis {axis}: {error.message}",
            "give its size in the configuration",
        ) from error


def _where_same(shapes: dict[str, Shape], others: dict[str, Shape]) -> dict[str, Shape]:
    pairs = ((name, zip(shape, others[name], strict=True)) for name, shape in shapes.items())
    return {name: tuple(a if a == b else -1 for a, b in sizes) for name, sizes in pairs}


def _specs(shapes: dict[str, Shape], has_batches: bool) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(name=name, datatype="FP32", dims=(-1, *shape[1:]) if has_batches else shape)
        for name, shape in shapes.items()
    )

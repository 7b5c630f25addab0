"""Caffe models, by this package's own reader."""

from __future__ import annotations

from pathlib import Path

import torch

from tonnage.errors import InvalidFile
from tonnage.program.caffe import load as load_model
from tonnage.serve.configuration import TensorSpec
from tonnage.serve.runtimes import LoadOrder
from tonnage.serve.runtimes.torch_runtime import TorchRuntime


def load(order: LoadOrder) -> TorchRuntime:
    """Shapes are those of the prototxt; a configuration with batches sets their first axis free."""
    torch.set_num_threads(order.setting("intra_op_thread_count", order.threads))
    path = Path(order.path)
    weights = path.with_suffix(".caffemodel")
    if not weights.exists():
        raise InvalidFile(f"{path.parent} has no {weights.name}", "the weights lie beside the prototxt")
    most = order.configuration.max_batch_size
    model = load_model(path, weights, batch=most or None)
    inputs = tuple(
        TensorSpec(name=name, datatype="FP32", dims=_dims(shape, most)) for name, shape in model.inputs.items()
    )
    outputs = tuple(
        TensorSpec(name=name, datatype="FP32", dims=_dims(shape, most)) for name, shape in model.outputs.items()
    )
    return TorchRuntime(model.module(order.device), inputs, outputs, batch_axis=bool(most), device=order.device)


def _dims(shape: tuple[int, ...], most: int) -> tuple[int, ...]:
    return (-1, *shape[1:]) if most else shape

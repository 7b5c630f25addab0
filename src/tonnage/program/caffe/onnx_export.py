"""Writes a Caffe network as an ONNX file, operator by operator, with the sizes that it was loaded with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tonnage.errors import MissingDependency, UsageError
from tonnage.program.caffe.layer import Layer, Shape
from tonnage.program.caffe.model import Model
from tonnage.program.caffe.network import Network
from tonnage.program.caffe.weights import Array

OPSET, _IR_VERSION = 17, 8


def export_onnx(model: Model, path: str | Path) -> None:
    """Write the file; raises `UsageError` for a layer that ONNX cannot express, and without weights."""
    if model.weights is None:
        raise UsageError(f"{model.network.file} has no weights", "name the caffemodel that belongs to it")
    import_onnx().save(onnx_model(model.network, model.weights), str(path))


def onnx_model(
    network: Network, weights: Mapping[str, Sequence[Array]], *, free_batch: bool = False, for_speed: bool = False
) -> Any:
    """As a message of onnx. With `free_batch` the first axis of inputs and outputs may have any size, which must be right
    for this network; with `for_speed` it is written as onnxruntime runs it fastest, not as people would."""
    import_onnx()
    from tonnage.program.caffe.onnx_layers import WRITERS

    writer = Writer(network, weights, free_batch=free_batch, for_speed=for_speed)
    for layer in network.layers:
        if layer.type not in WRITERS:
            layer.refuse("has no counterpart in ONNX", hint="export a network that ends before it")
        WRITERS[layer.type](writer, layer)
    return writer.finished()


def import_onnx() -> Any:
    try:
        import onnx
    except ModuleNotFoundError:
        raise MissingDependency("writing ONNX files needs the onnx package", "pip install tonnage[onnx]") from None
    return onnx


class Writer:
    """The graph as it grows. Values have the names of their blobs; those that a layer changes in place get a number."""

    def __init__(
        self, network: Network, weights: Mapping[str, Sequence[Array]], *, free_batch: bool, for_speed: bool
    ) -> None:
        self._network, self._weights = network, weights
        self.free_batch, self.for_speed = free_batch, for_speed
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}
        self._names = self._named()

    def _named(self) -> list[str]:
        names: list[str] = [""] * len(self._network.shapes)
        last: dict[str, int] = {}
        for layer in self._network.layers:
            for name, number in zip(layer.tops, layer.makes, strict=True):
                names[number] = f"{name}@{number}"
                last[name] = number
        for name, number in (*last.items(), *self._network.inputs.items()):
            names[number] = name
        taken = set(self._network.inputs)
        for name, number in last.items():
            if name in taken:
                names[number] = f"{name}@{number}"
        return names

    # -- what a layer reads -------------------------------------------------------------------------------------------

    def bottoms(self, layer: Layer) -> list[str]:
        return [self._names[number] for number in layer.reads]

    def shapes(self, layer: Layer) -> list[Shape]:
        return [self._network.shapes[number] for number in layer.reads]

    def made(self, layer: Layer) -> Shape:
        """The shape of the first top."""
        return self._network.shapes[layer.makes[0]]

    def weights(self, layer: Layer) -> Sequence[Array]:
        return self._weights.get(layer.name, ())

    # -- what it becomes ----------------------------------------------------------------------------------------------

    def constant(self, value: npt.ArrayLike, dtype: Any = np.float32) -> str:
        """The name of a constant."""
        from onnx import numpy_helper

        name = f"constant@{len(self._constants)}"
        self._constants[name] = numpy_helper.from_array(np.ascontiguousarray(np.asarray(value, dtype)), name)
        return name

    def integers(self, *values: int) -> str:
        return self.constant(values, np.int64)

    def sizes(self, *shape: int) -> str:
        """A shape to give something; its first axis takes what is left where batches are of any size."""
        return self.integers(-1, *shape[1:]) if self.free_batch and shape else self.integers(*shape)

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """One operator with one result, whose name is returned."""
        return self._node(op, inputs, [f"{op}@{len(self._nodes)}"], attributes)[0]

    def end(self, layer: Layer, op: str, *inputs: str, **attributes: Any) -> None:
        """The operator that makes the tops of a layer."""
        self._node(op, inputs, [self._names[number] for number in layer.makes], attributes)

    def _node(self, op: str, inputs: tuple[str, ...], outputs: list[str], attributes: dict[str, Any]) -> list[str]:
        from onnx import helper

        self._nodes.append(helper.make_node(op, list(inputs), outputs, name=f"{op}_{len(self._nodes)}", **attributes))
        return outputs

    def _sizes(self, number: int) -> list[str | int | None]:
        shape = self._network.shapes[number]
        return ["N", *shape[1:]] if self.free_batch and shape else [*shape]

    def finished(self) -> Any:
        from onnx import TensorProto, helper

        def infos(numbers: dict[str, int]) -> list[Any]:
            return [
                helper.make_tensor_value_info(self._names[n], TensorProto.FLOAT, self._sizes(n))
                for n in numbers.values()
            ]

        graph = helper.make_graph(
            self._nodes, self._network.name or "caffe", infos(dict(self._network.inputs)),
            infos(dict(self._network.outputs)), list(self._constants.values()),
        )  # fmt: skip
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="tonnage")

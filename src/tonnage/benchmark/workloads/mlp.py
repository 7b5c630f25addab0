"""Multilayer perceptrons: equal hidden layers, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tonnage.benchmark.workloads import layer
from tonnage.benchmark.workloads.family import Family, Structure, text, whole
from tonnage.benchmark.workloads.layer import Layer
from tonnage.benchmark.workloads.number import Number

if TYPE_CHECKING:
    from tonnage.benchmark.workloads.workload import Workload


class Mlp(Family):
    """Dense networks of one width."""

    name = "mlp"
    help = "Multilayer perceptron: hidden layers of equal width, output layer."
    numbers = (
        Number(
            name="depth", low=1, high=64, default=4, scale="linear", linear="always", help="number of hidden layers"
        ),
        Number(name="width", low=8, high=16384, default=1024, help="nodes of a hidden layer"),
        Number(name="inputs", low=8, high=65536, default=784, linear="always", help="values of one sample"),
        Number(name="activation", choices=("relu", "gelu", "tanh", "sigmoid"), default="relu", help="after each layer"),
        Number(name="classes", low=2, high=32768, default=10, linear="always", help="nodes of the output layer"),
    )

    def _input_shape(self, point: Structure) -> tuple[int, ...]:
        return (whole(point, "inputs"),)

    def _layers(self, point: Structure) -> Iterator[Layer]:
        inputs, width = whole(point, "inputs"), whole(point, "width")
        for position in range(1, whole(point, "depth") + 1):
            yield layer.dense(f"hidden{position}", inputs, width)
            inputs = width
        yield layer.dense("output", width, whole(point, "classes"))

    def _build(self, point: Structure) -> Workload:
        from tonnage.benchmark.workloads.networks.mlp import make_network
        from tonnage.benchmark.workloads.workload import Workload, classification_loss, numbers_and_class

        return Workload(
            module=make_network(tuple(self._layers(point)), text(point, "activation")),
            draw=numbers_and_class(self._input_shape(point), whole(point, "classes")),
            loss=classification_loss,
        )

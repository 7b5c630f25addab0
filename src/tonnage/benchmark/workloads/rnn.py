"""Recurrent networks: layers of one cell over a sequence, and a class from the last position."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tonnage.benchmark.workloads import layer
from tonnage.benchmark.workloads.family import Family, Structure, text, whole
from tonnage.benchmark.workloads.layer import Layer
from tonnage.benchmark.workloads.number import Number

if TYPE_CHECKING:
    from tonnage.benchmark.workloads.workload import Workload

_GATES = {"lstm": 4, "gru": 3, "rnn": 1}


class Rnn(Family):
    """Sequence classifiers with LSTM, GRU or plain recurrent cells."""

    name = "rnn"
    help = "Recurrent network: layers of one cell over a sequence, output layer at its end."
    numbers = (
        Number(
            name="cell", choices=tuple(_GATES), default="lstm", help="kind of cell; `rnn` is the plain one with tanh"
        ),
        Number(name="layers", low=1, high=8, default=2, scale="linear", linear="always", help="number of layers"),
        Number(name="hidden", low=8, high=4096, default=256, help="width of the hidden state"),
        Number(name="inputs", low=8, high=4096, default=128, linear="always", help="values at each position"),
        Number(name="sequence", low=4, high=2048, default=64, help="positions of one sample"),
        Number(name="classes", low=2, high=32768, default=10, linear="always", help="nodes of the output layer"),
    )

    def _input_shape(self, point: Structure) -> tuple[int, ...]:
        return whole(point, "sequence"), whole(point, "inputs")

    def _layers(self, point: Structure) -> Iterator[Layer]:
        inputs, hidden, gates = whole(point, "inputs"), whole(point, "hidden"), _GATES[text(point, "cell")]
        for position in range(1, whole(point, "layers") + 1):
            yield layer.recurrent(f"recurrent{position}", inputs, hidden, gates, whole(point, "sequence"))
            inputs = hidden
        yield layer.dense("output", hidden, whole(point, "classes"))

    def _build(self, point: Structure) -> Workload:
        from tonnage.benchmark.workloads.networks.rnn import RecurrentNetwork
        from tonnage.benchmark.workloads.workload import Workload, classification_loss, numbers_and_class

        return Workload(
            module=RecurrentNetwork(
                text(point, "cell"),
                *(whole(point, name) for name in ("inputs", "hidden", "layers", "classes")),
            ),
            draw=numbers_and_class(self._input_shape(point), whole(point, "classes")),
            loss=classification_loss,
        )

"""Convolutional networks in which one number moves at a time.

    [1x1 stem] -> convolutions -> average over a grid x grid -> flatten -> dense layers -> output layer

The minimal base model has neither convolutions nor dense layers: it flattens the image into one output layer.

Each structural change moves the parameter count linearly, and this decides the design. Convolutions keep the size of
the image (padding), and whatever they put out is averaged to a fixed grid before it is flattened: so the first dense
layer depends neither on the size of the image nor on the number of convolutions. One more layer of K filters then adds
9 K² + K parameters, each time. The first layer alone is different, since it sees the channels of the image; with a
stem of K filters before it, it is like all others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from tonnage.benchmark.workloads import layer
from tonnage.benchmark.workloads.family import Family, Structure, text, whole
from tonnage.benchmark.workloads.layer import Layer
from tonnage.benchmark.workloads.number import Number

if TYPE_CHECKING:
    from tonnage.benchmark.workloads.workload import Workload

MAX_LAYERS = 5
DATASETS = {
    "mnist": "28x28x1",
    "cifar10": "32x32x3",
    # Its photographs have many sizes; 150 x 150 is one that examples commonly scale them to.
    "dogs-vs-cats": "150x150x3",
}
_SIZES = (16, 24, 32, 48, 64, 96, 128, 160, 192, 224, 256)
_INPUTS = (*(f"{size}x{size}x3" for size in _SIZES), *DATASETS.values(), *DATASETS)


def _filters(position: int) -> Number:
    return Number(
        name=f"conv{position}",
        low=8,
        high=512,
        default=32,
        linear="always",
        help=f"filters of convolution {position}",
    )


def _nodes(position: int) -> Number:
    return Number(
        name=f"dense{position}",
        low=8,
        high=512,
        default=64,
        linear="always",
        help=f"nodes of dense layer {position}",
    )


class Convolutional(Family):
    """Image classifiers with up to five convolutions and up to five dense layers."""

    name = "convolutional"
    help = "Image classifier: convolutions, average over a grid, dense layers, output layer."
    takes_images = True
    numbers = (
        Number(
            name="input",
            choices=tuple(dict.fromkeys(_INPUTS)),
            default="32x32x3",
            help="height x width x channels of an image, or the data set that has it",
        ),
        Number(
            name="convolutions",
            low=0,
            high=MAX_LAYERS,
            default=3,
            scale="linear",
            linear="equal filters: from 1 on, and from 0 on if `stem` has as many",
            help="number of convolutions, each with ReLU",
        ),
        *(_filters(position) for position in range(1, MAX_LAYERS + 1)),
        Number(
            name="dense",
            low=0,
            high=MAX_LAYERS,
            default=1,
            scale="linear",
            linear="equal nodes: from 1 on, and from 0 on if the flattened width is the same",
            help="number of dense layers before the output layer, each with ReLU",
        ),
        *(_nodes(position) for position in range(1, MAX_LAYERS + 1)),
        Number(name="classes", low=2, high=1000, default=10, linear="always", help="nodes of the output layer"),
        Number(
            name="stem",
            low=0,
            high=512,
            default=0,
            scale="linear",
            linear="from 1 on",
            help="filters of a 1x1 convolution with ReLU before all others; 0 for none",
        ),
        Number(name="kernel", choices=(1, 3, 5, 7), default=3, help="side of the window of the convolutions"),
        Number(name="norm", choices=("none", "batch"), default="none", help="normalisation after each convolution"),
        Number(
            name="pooling",
            choices=("none", "max"),
            default="none",
            help="`max` halves the image after each convolution, down to one pixel",
        ),
        Number(
            name="grid",
            choices=(1, 2, 4, 8),
            default=4,
            help="side to which the image is averaged before it is flattened, if anything was convolved",
        ),
    )

    def _same_as(self, full: Structure) -> Structure:
        return {"input": DATASETS.get(text(full, "input"), full["input"])}

    def _relevant(self, full: Structure) -> Collection[str]:
        convolutions = whole(full, "convolutions")
        names = {"input", "convolutions", "dense", "classes", "stem"}
        names |= {f"conv{position}" for position in range(1, convolutions + 1)}
        names |= {f"dense{position}" for position in range(1, whole(full, "dense") + 1)}
        if convolutions:
            names |= {"kernel", "pooling"}
        if convolutions or full["stem"]:
            names |= {"norm", "grid"}
        return names

    def _input_shape(self, point: Structure) -> tuple[int, int, int]:
        height, width, channels = (int(side) for side in text(point, "input").split("x"))
        return channels, height, width

    def _layers(self, point: Structure) -> Iterator[Layer]:
        depth, size, _ = self._input_shape(point)
        flat = depth * size * size
        for name, filters, kernel in _convolutions(point):
            yield layer.convolution(name, depth, filters, kernel, size, size)
            if point["norm"] == "batch":
                yield layer.norm(f"{name}.norm", filters, size * size)
            if point.get("pooling") == "max" and name != "stem":
                size = max(size // 2, 1)
            depth, flat = filters, filters * whole(point, "grid") ** 2
        for position in range(1, whole(point, "dense") + 1):
            nodes = whole(point, f"dense{position}")
            yield layer.dense(f"dense{position}", flat, nodes)
            flat = nodes
        yield layer.dense("output", flat, whole(point, "classes"))

    def _build(self, point: Structure) -> Workload:
        from tonnage.benchmark.workloads.networks.convolutional import make_network
        from tonnage.benchmark.workloads.workload import Workload, classification_loss, numbers_and_class

        shape = self._input_shape(point)
        return Workload(
            module=make_network(tuple(self._layers(point)), shape[1], point),
            draw=numbers_and_class(shape, whole(point, "classes")),
            loss=classification_loss,
        )


def _convolutions(point: Structure) -> Iterator[tuple[str, int, int]]:
    """Name, filters and kernel of each convolution, the stem among them."""
    if whole(point, "stem"):
        yield "stem", whole(point, "stem"), 1
    for position in range(1, whole(point, "convolutions") + 1):
        yield f"conv{position}", whole(point, f"conv{position}"), whole(point, "kernel")

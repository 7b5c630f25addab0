"""Leaves blobs apart that are joined only to be convolved to fewer channels: the sum of a convolution of each is the same.

A network of fire modules joins two blobs before each convolution that squeezes them; on a processor that copy costs more
than adding the small results. Poolings and dropouts in between take each part by itself.
"""

from __future__ import annotations

from dataclasses import replace

from tonnage.program.caffe.layer import Layer, Shape
from tonnage.program.caffe.network import Network
from tonnage.program.caffe.shapes import shapes_of
from tonnage.program.caffe.shapes.arrangement import concat_axis

SUMMED = "SummedConvolution"
_EACH = ("Pooling", "Dropout")


def apart(network: Network) -> Network:
    """The same network without joins that nothing but such convolutions read."""
    readers = network.readers
    only = {number: layer for layer in network.layers for number in layer.reads}
    shapes = list(network.shapes)
    instead: dict[int, list[Layer]] = {}  # by the first value that a layer makes
    for layer in network.layers:
        chain = _chain(layer, network, readers, only)
        if chain:
            _rewrite([layer, *chain], shapes, instead)
    layers = [new for layer in network.layers for new in instead.get(layer.makes[0] if layer.makes else -1, [layer])]
    return replace(network, layers=tuple(layers), shapes=tuple(shapes))


def _chain(join: Layer, network: Network, readers: dict[int, int], only: dict[int, Layer]) -> list[Layer]:
    """The layers from a join to the convolution that squeezes it; none if it is joined for something else."""
    if join.type != "Concat" or len(join.reads) < 2:
        return []
    shape = network.shapes[join.makes[0]]
    if len(shape) != 4 or concat_axis(join, shape) != 1:
        return []
    chain: list[Layer] = []
    value = join.makes[0]
    while readers[value] == 1 and value in only:
        layer = only[value]
        chain.append(layer)
        if layer.type == "Convolution":
            param = layer.param("convolution_param")
            squeezes = 2 * param.get("num_output") <= shape[1]
            return chain if param.get("group") == 1 and len(layer.makes) == 1 and squeezes else []
        if layer.type not in _EACH or len(layer.makes) != 1:
            return []
        value = layer.makes[0]
    return []


def _rewrite(chain: list[Layer], shapes: list[Shape], instead: dict[int, list[Layer]]) -> None:
    join, *between, convolution = chain
    parts = join.reads
    instead[join.makes[0]] = []
    for layer in between:
        made = []
        for part in parts:
            shapes.append(shapes_of(layer, [shapes[part]]).tops[0])
            made.append(replace(layer, reads=(part,), makes=(len(shapes) - 1,)))
        instead[layer.makes[0]] = made
        parts = tuple(each.makes[0] for each in made)
    instead[convolution.makes[0]] = [replace(convolution, type=SUMMED, reads=parts)]

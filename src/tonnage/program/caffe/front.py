"""The part of a network whose shapes do not depend on values: what can be compiled, or written as ONNX."""

from __future__ import annotations

from dataclasses import replace

from tonnage.errors import TonnageError
from tonnage.program.caffe.network import Network, reshaped

_BY_VALUES = ("DetectionOutput",)  # what these return is as large as they find things
_FIXED = ("Interp", "Upsample")  # ONNX wants to know all sizes of what these make


def depends_on_values(network: Network) -> set[int]:
    """The values that come of layers whose results have no fixed shape."""
    found: set[int] = set()
    for layer in network.layers:
        if layer.type in _BY_VALUES or found.intersection(layer.reads):
            found.update(layer.makes)
    return found


def front_of(network: Network) -> Network:
    """All other layers, as a network whose outputs are what the rest reads, and what is an output anyway."""
    later = depends_on_values(network)
    if not later:
        return network
    layers = tuple(layer for layer in network.layers if not later.intersection((*layer.makes, *layer.reads)))
    made = {number: name for layer in layers for name, number in zip(layer.tops, layer.makes, strict=True)}
    read = {number for layer in network.layers if later.intersection(layer.makes) for number in layer.reads}
    wanted = sorted(made.keys() & (read | set(network.outputs.values())))
    outputs = {f"{made[number]}@{number}": number for number in wanted}
    return replace(network, layers=layers, outputs=outputs)


def why_no_batches(network: Network) -> str:
    """A sentence that names what holds no batch; "" if the first axis of all inputs and outputs is one."""
    first = {shape[0] if shape else 0 for shape in network.input_shapes.values()}
    if len(first) != 1 or 0 in first:
        return "its inputs differ in their first axis"
    later = depends_on_values(network)
    for name, number in network.outputs.items():
        if number in later:
            return f"the output {name} has as many rows as are found"
    try:
        doubled = _doubled(network)
    except TonnageError as error:
        return f"it takes only batches of {first.pop()}: {error.message}"
    for name, number in network.outputs.items():
        if not _is_doubled(network, doubled, number) or network.shapes[number][0] not in first:
            return f"the first axis of the output {name} is not the batch"
    return ""


def is_by_rows(network: Network) -> bool:
    """Is the first axis of every value the batch, or a multiple of it?"""
    if any(layer.type in _FIXED for layer in network.layers):
        return False
    try:
        doubled = _doubled(network)
    except TonnageError:
        return False
    return all(_is_doubled(network, doubled, number) for number in range(len(network.shapes)))


def _doubled(network: Network) -> Network:
    return reshaped(network, {name: (2 * shape[0], *shape[1:]) for name, shape in network.input_shapes.items()})


def _is_doubled(network: Network, doubled: Network, number: int) -> bool:
    shape = network.shapes[number]
    return len(shape) > 0 and doubled.shapes[number] == (2 * shape[0], *shape[1:])

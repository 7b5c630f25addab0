"""Which layers run as one: a convolution takes up the normalisations and the activation that follow it.

A chain ends where a value has another reader, or is an output of the network.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tonnage.program.caffe.layer import Layer
from tonnage.program.caffe.network import Network
from tonnage.program.caffe.normalisation import uses_stored

_CONVOLUTIONS = ("Convolution", "DepthwiseConvolution", "ConvolutionDepthwise", "SummedConvolution")
_LINEAR = ("BatchNorm", "BN", "Scale", "Bias")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A layer with those that it takes up, and the values that nothing needs afterwards."""

    layer: Layer
    linear: tuple[Layer, ...] = ()
    activation: Layer | None = None
    reads: tuple[int, ...] = ()
    makes: tuple[int, ...] = ()
    drops: tuple[int, ...] = ()


def steps_of(network: Network) -> list[Step]:
    """The layers of a network as they run."""
    readers, only = network.readers, _only_readers(network)
    taken: set[int] = set()
    found: list[Step] = []
    for layer in network.layers:
        if layer.makes and layer.makes[0] in taken:
            continue
        chain = _chain(layer, network, readers, only)
        linear = tuple(each for each in chain if each.type != "ReLU")
        activation = chain[-1] if chain and chain[-1].type == "ReLU" else None
        taken.update(number for each in chain for number in each.makes)
        makes = chain[-1].makes if chain else layer.makes
        found.append(Step(layer=layer, linear=linear, activation=activation, reads=layer.reads, makes=makes))
    return _with_drops(found, set(network.outputs.values()))


def _only_readers(network: Network) -> dict[int, Layer]:
    return {number: layer for layer in network.layers for number in layer.reads}


def _chain(layer: Layer, network: Network, readers: dict[int, int], only: dict[int, Layer]) -> list[Layer]:
    if layer.type not in _CONVOLUTIONS or len(layer.makes) != 1:
        return []
    chain = linear_chain(layer, network, readers, only)
    value = chain[-1].makes[0] if chain else layer.makes[0]
    follower = only.get(value)
    if readers[value] == 1 and follower is not None and follower.type == "ReLU":
        chain.append(follower)
    return chain


def linear_chain(layer: Layer, network: Network, readers: dict[int, int], only: dict[int, Layer]) -> list[Layer]:
    """The layers behind one that only scale and shift each channel, as far as nothing else reads what they read."""
    chain: list[Layer] = []
    value = layer.makes[0]
    while readers[value] == 1 and value in only and is_linear(only[value], len(network.shapes[value])):
        chain.append(only[value])
        value = chain[-1].makes[0]
    return chain


def is_linear(layer: Layer, axes: int) -> bool:
    """One factor and summand for each channel?"""
    if layer.type not in _LINEAR or len(layer.reads) != 1:
        return False
    if layer.type in ("BatchNorm", "BN"):
        return uses_stored(layer)
    param = layer.param("scale_param" if layer.type == "Scale" else "bias_param")
    return param.get("axis") in (1, 1 - axes) and param.get("num_axes") == 1


def _with_drops(steps: list[Step], outputs: set[int]) -> list[Step]:
    """Each value goes after its last reader."""
    last: dict[int, int] = {}
    for number, step in enumerate(steps):
        last.update(dict.fromkeys((*step.reads, *step.makes), number))
    drops: list[list[int]] = [[] for _ in steps]
    for value, number in last.items():
        if value not in outputs:
            drops[number].append(value)
    return [replace(step, drops=tuple(gone)) for step, gone in zip(steps, drops, strict=True)]

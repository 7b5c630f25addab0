"""Folds normalisations into the weights before them; those that stand alone become one factor and one summand a channel.

What runs the network then has fewer layers to run, whoever it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tonnage.program.caffe.fusion import is_linear, linear_chain
from tonnage.program.caffe.layer import Layer
from tonnage.program.caffe.network import Network
from tonnage.program.caffe.normalisation import batch_norm_factors
from tonnage.program.caffe.weights import Array

AFFINE = "Affine"
_WEIGHTED = ("Convolution", "DepthwiseConvolution", "ConvolutionDepthwise", "Deconvolution", "InnerProduct")
Weights: TypeAlias = Mapping[str, Sequence[Array]]


def folded_network(network: Network) -> Network:
    """The same network with fewer layers."""
    layers = []
    for layer, chain in _chains(network):
        kind = AFFINE if layer.type not in _WEIGHTED and _stands_alone(layer, network) else layer.type
        last = chain[-1] if chain else layer
        layers.append(replace(layer, type=kind, tops=last.tops, makes=last.makes))
    return replace(network, layers=tuple(layers))


def folded_weights(network: Network, weights: Weights) -> dict[str, Sequence[Array]]:
    """The weights that the layers of a folded network have; arrays that stay as they are are not copied."""
    found: dict[str, Sequence[Array]] = {}
    for layer, chain in _chains(network):
        if layer.type in _WEIGHTED and chain:
            found[layer.name] = _product(layer, network, weights, _total(chain, weights))
        elif _stands_alone(layer, network):
            found[layer.name] = _total([layer, *chain], weights)
        elif layer.name in weights:
            found[layer.name] = weights[layer.name]
    return found


def _chains(network: Network) -> Iterator[tuple[Layer, list[Layer]]]:
    """Each layer with those that it takes up."""
    only = {number: layer for layer in network.layers for number in layer.reads}
    readers, taken = network.readers, set[int]()
    for layer in network.layers:
        if layer.makes and layer.makes[0] in taken:
            continue
        chain = _followers(layer, network, readers, only)
        taken.update(number for each in chain for number in each.makes)
        yield layer, chain


def _followers(layer: Layer, network: Network, readers: dict[int, int], only: dict[int, Layer]) -> list[Layer]:
    if len(layer.makes) != 1 or not (layer.type in _WEIGHTED or _stands_alone(layer, network)):
        return []
    if layer.type == "InnerProduct" and len(network.shapes[layer.makes[0]]) != 2:
        return []
    return linear_chain(layer, network, readers, only)


def _stands_alone(layer: Layer, network: Network) -> bool:
    axes = len(network.shapes[layer.reads[0]]) if len(layer.reads) == 1 else 0
    return axes > 1 and is_linear(layer, axes)


def _total(chain: Sequence[Layer], weights: Weights) -> tuple[Array, Array]:
    """One factor and one summand of all that a chain does to each channel."""
    factor: npt.NDArray[np.float64] = np.ones(1)
    summand: npt.NDArray[np.float64] = np.zeros(1)
    for layer in chain:
        times, plus = _linear(layer, [each.astype(np.float64).reshape(-1) for each in weights[layer.name]])
        factor, summand = factor * times, summand * times + plus
    both = np.broadcast_arrays(factor, summand)
    return both[0].astype(np.float32), both[1].astype(np.float32)


def _linear(
    layer: Layer, own: list[npt.NDArray[np.float64]]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    if layer.type in ("BatchNorm", "BN"):
        return batch_norm_factors(layer, own)
    if layer.type == "Scale":
        return own[0], own[1] if len(own) > 1 else np.zeros(1)
    return np.ones(1), own[0]


def _product(layer: Layer, network: Network, weights: Weights, total: tuple[Array, Array]) -> tuple[Array, ...]:
    """Weights with a factor for each output, and a bias that takes up the summand."""
    (factor, summand), (weight, *bias) = total, weights[layer.name]
    outputs = network.shapes[layer.makes[0]][1]
    factor, summand = np.broadcast_to(factor, outputs), np.broadcast_to(summand, outputs)
    if layer.type == "Deconvolution":
        groups = outputs // weight.shape[1]
        split = weight.reshape(groups, -1, *weight.shape[1:])
        spread = factor.reshape(groups, 1, -1, *(1,) * (weight.ndim - 2))
        scaled = (split * spread).reshape(weight.shape)
    elif layer.type == "InnerProduct" and layer.param("inner_product_param").get("transpose"):
        scaled = weight * factor
    else:
        scaled = weight * factor.reshape(-1, *(1,) * (weight.ndim - 1))
    return scaled, (bias[0].reshape(-1) * factor if bias else 0) + summand

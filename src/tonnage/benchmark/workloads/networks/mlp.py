"""Multilayer perceptrons, made from the description of their layers."""

from collections import OrderedDict
from collections.abc import Sequence

from torch import nn

from tonnage.benchmark.workloads.layer import Layer

_ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid}


def make_network(layers: Sequence[Layer], activation: str) -> nn.Sequential:
    """Linear layers with an activation after all but the last."""
    modules: OrderedDict[str, nn.Module] = OrderedDict()
    for layer in layers:
        modules[layer.name] = nn.Linear(layer.inputs, layer.outputs)
        if layer.name != "output":
            modules[f"{layer.name}_{activation}"] = _ACTIVATIONS[activation]()
    return nn.Sequential(modules)

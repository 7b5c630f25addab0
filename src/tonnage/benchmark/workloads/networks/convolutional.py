"""Convolutional networks, made from the description of their layers."""

from collections import OrderedDict
from collections.abc import Sequence

from torch import nn

from tonnage.benchmark.workloads.family import Structure, whole
from tonnage.benchmark.workloads.layer import Layer


def make_network(layers: Sequence[Layer], size: int, point: Structure) -> nn.Sequential:
    """The layers with what stands between them: ReLU, pooling, the grid and the flattening."""
    modules: OrderedDict[str, nn.Module] = OrderedDict()
    has_norm = point.get("norm") == "batch"
    for layer in layers:
        name = layer.name.replace(".", "_")
        if layer.kind == "convolution":
            modules[name] = nn.Conv2d(layer.inputs, layer.outputs, layer.kernel, padding=layer.kernel // 2)
            if not has_norm:
                size = _activate(modules, layer.name, size, point)
        elif layer.kind == "norm":
            modules[name] = nn.BatchNorm2d(layer.outputs)
            size = _activate(modules, layer.name.removesuffix(".norm"), size, point)
        else:
            if "flatten" not in modules:
                _flatten(modules, point)
            modules[name] = nn.Linear(layer.inputs, layer.outputs)
            if layer.name != "output":
                modules[f"{name}_relu"] = nn.ReLU()
    return nn.Sequential(modules)


def _activate(modules: OrderedDict[str, nn.Module], name: str, size: int, point: Structure) -> int:
    """ReLU, and pooling after all but the stem; returns the size of the image from here on."""
    modules[f"{name}_relu"] = nn.ReLU()
    if name == "stem" or point.get("pooling") != "max" or size == 1:
        return size
    modules[f"{name}_pool"] = nn.MaxPool2d(2)
    return size // 2


def _flatten(modules: OrderedDict[str, nn.Module], point: Structure) -> None:
    if "grid" in point:
        modules["grid"] = nn.AdaptiveAvgPool2d(whole(point, "grid"))
    modules["flatten"] = nn.Flatten()

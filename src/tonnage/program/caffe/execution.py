"""A Caffe network as a torch module: layer by layer in the order of the file, on any device.

Convolutions take up the normalisations and the ReLU behind them; every value is let go after its last reader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from tonnage.errors import UsageError
from tonnage.program.caffe.apart import apart
from tonnage.program.caffe.fusion import Step, steps_of
from tonnage.program.caffe.layer import Layer, Shape, shown
from tonnage.program.caffe.layers import BUILDERS
from tonnage.program.caffe.layers.windows import Convolution, SummedConvolution
from tonnage.program.caffe.network import Network, reshaped
from tonnage.program.caffe.normalisation import batch_norm_factors
from tonnage.program.caffe.processor import fastest
from tonnage.program.caffe.weights import Array

_BY_VALUES = ("DetectionOutput",)  # what these return has a size that depends on values: not to be compiled


class CaffeModule(nn.Module):
    """Takes tensors in the order of the network's inputs and returns a tuple in the order of its outputs."""

    def __init__(self, network: Network, weights: Mapping[str, Sequence[Array]] | None = None) -> None:
        """Without weights the module has the right shapes, and no values."""
        super().__init__()
        self.network = network
        self._steps: list[tuple[nn.Module, Step]] = []
        self._fast: Callable[..., tuple[Tensor, ...]] | None = None
        for step in steps_of(network):
            module = _module(step, network, weights)
            self.add_module(self._free_name(step.layer.name), module)
            self._steps.append((module, step))
        types = [step.layer.type for _, step in self._steps]
        self._first = next((number for number, kind in enumerate(types) if kind in _BY_VALUES), len(types))
        later = {read for _, step in self._steps[self._first :] for read in step.reads}
        made = {*network.inputs.values(), *(value for _, step in self._steps[: self._first] for value in step.makes)}
        self._between = sorted(made & (later | set(network.outputs.values())))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        as_loaded = self._check(inputs)
        front = self._fast if self._fast is not None and as_loaded and inputs[0].device.type == "cpu" else self._front
        values = dict(zip(self._between, front(*inputs), strict=True))
        _run(self._steps[self._first :], values)
        return tuple(values[number].contiguous() for number in self.network.outputs.values())

    def for_processor(self, weights: Mapping[str, Sequence[Array]]) -> CaffeModule:
        """The same, compiled for a processor and inputs of the shapes that the network was loaded with."""
        examples = tuple(torch.rand(shape) for shape in self.network.input_shapes.values())
        way = fastest(_Front(CaffeModule(apart(self.network), weights)).eval(), examples)
        self._fast = lambda *inputs: way(*inputs)  # a function, so that what was compiled is no part of this module
        return self

    def _front(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Everything before the first layer that cannot be compiled."""
        values = dict(zip(self.network.inputs.values(), inputs, strict=True))
        kept = {number: values[number] for number in self._between if number in values}
        _run(self._steps[: self._first], values)
        return tuple({**kept, **values}[number] for number in self._between)

    def _check(self, inputs: tuple[Tensor, ...]) -> bool:
        """Are the shapes those of the file? Others must go through the whole network."""
        names = list(self.network.inputs)
        if len(inputs) != len(names):
            raise UsageError(f"{len(names)} inputs are needed ({', '.join(names)}), not {len(inputs)}")
        shapes = {name: tuple(given.shape) for name, given in zip(names, inputs, strict=True)}
        if shapes == self.network.input_shapes:
            return True
        for name, shape in shapes.items():
            if len(shape) != len(self.network.input_shapes[name]):
                wanted = shown(self.network.input_shapes[name])
                raise UsageError(f"input {name} has the shape {shown(shape)}; the network takes {wanted}")
        reshaped(self.network, shapes)
        return False

    def _free_name(self, name: str) -> str:
        name = name.replace(".", "_") or "layer"
        while hasattr(self, name):
            name += "_"
        return name


class _Front(nn.Module):
    """The part of a network that can be compiled."""

    def __init__(self, whole: CaffeModule) -> None:
        super().__init__()
        self.whole = whole

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self.whole._front(*inputs)


def _run(steps: list[tuple[nn.Module, Step]], values: dict[int, Tensor]) -> None:
    for module, step in steps:
        made = module(*[values[number] for number in step.reads])
        values.update(zip(step.makes, made if isinstance(made, tuple) else (made,), strict=True))
        for number in step.drops:
            values.pop(number, None)


def _module(step: Step, network: Network, weights: Mapping[str, Sequence[Array]] | None) -> nn.Module:
    shapes = [network.shapes[number] for number in step.reads]
    module = BUILDERS[step.layer.type](step.layer, _tensors(step.layer, network, weights), shapes)
    if isinstance(module, Convolution):
        for layer in step.linear:
            _fold(module, layer, _tensors(layer, network, weights))
        if step.activation is not None:
            module.slope = step.activation.param("relu_param").get("negative_slope")
    if isinstance(module, SummedConvolution):
        module.divide([shape[1] for shape in shapes])
    return module.eval()


def _tensors(layer: Layer, network: Network, weights: Mapping[str, Sequence[Array]] | None) -> list[Tensor]:
    wanted: tuple[Shape, ...] = network.weights.get(layer.name, ())
    if weights is None:
        return [torch.empty(shape) for shape in wanted]
    return [torch.from_numpy(array) for array in weights.get(layer.name, ())]


def _fold(module: Convolution, layer: Layer, weights: list[Tensor]) -> None:
    """The convolution does what a layer behind it would do to each channel."""
    factor: Tensor | None
    summand: Tensor | None
    if layer.type in ("BatchNorm", "BN"):
        factor, summand = batch_norm_factors(layer, weights)
    elif layer.type == "Scale":
        factor, summand = weights[0], weights[1] if len(weights) > 1 else None
    else:
        factor, summand = None, weights[0]
    bias = module.bias.data if module.bias is not None else None
    if factor is not None:
        module.weight.data = module.weight.data * factor.reshape(-1, *(1,) * (module.weight.dim() - 1))
        bias = bias * factor if bias is not None else None
    if summand is not None:
        bias = summand if bias is None else bias + summand
    module.bias = nn.Parameter(bias, requires_grad=False) if bias is not None else None

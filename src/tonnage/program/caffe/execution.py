"""A Caffe network as a torch module: layer by layer in the order of the file, on any device.

Convolutions take up the normalisations and the ReLU behind them; every value is let go after its last reader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from tonnage.errors import InvalidFile, UsageError
from tonnage.program.caffe.front import depends_on_values
from tonnage.program.caffe.fusion import Step, steps_of
from tonnage.program.caffe.layer import Layer, Shape, shown
from tonnage.program.caffe.layers import BUILDERS
from tonnage.program.caffe.layers.windows import Convolution, SummedConvolution
from tonnage.program.caffe.network import Network, reshaped
from tonnage.program.caffe.normalisation import batch_norm_factors
from tonnage.program.caffe.weights import Array


class Fast(Protocol):
    """Runs the front of a network faster than layer by layer, for inputs of some shapes on one kind of device."""

    def find(self, shapes: tuple[Shape, ...]) -> Callable[..., tuple[Tensor, ...]] | None:
        """What runs inputs of these shapes; None where it does not pay, or is not ready."""
        ...

    @property
    def device(self) -> torch.device: ...

    @property
    def makes(self) -> Sequence[int]:
        """The values that it returns."""
        ...

    @property
    def chosen(self) -> Mapping[tuple[Shape, ...], str]:
        """How inputs of which shapes are run."""
        ...


class CaffeModule(nn.Module):
    """Takes tensors in the order of the network's inputs and returns a tuple in the order of its outputs."""

    def __init__(self, network: Network, weights: Mapping[str, Sequence[Array]] | None = None) -> None:
        """Without weights the module has the right shapes, and no values."""
        super().__init__()
        self.network = network
        self._steps: list[tuple[nn.Module, Step]] = []
        self.fast: Fast | None = None
        for step in steps_of(network):
            module = _module(step, network, weights)
            self.add_module(self._free_name(step.layer.name), module)
            self._steps.append((module, step))
        later = depends_on_values(network)
        self._rest = [(module, step) for module, step in self._steps if later.intersection(step.makes)]

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        if len(inputs) != len(self.network.inputs):
            names = ", ".join(self.network.inputs)
            raise UsageError(f"{len(self.network.inputs)} inputs are needed ({names}), not {len(inputs)}")
        shapes = tuple(tuple(each.shape) for each in inputs)
        values = dict(zip(self.network.inputs.values(), inputs, strict=True))
        run = self.fast.find(shapes) if self.fast is not None and _suit(inputs, self.fast.device) else None
        if self.fast is not None and run is not None:
            values.update(zip(self.fast.makes, run(*inputs), strict=True))
            _run(self._rest, values)
        else:
            self._check(inputs)
            _run(self._steps, values)
        return tuple(values[number].contiguous() for number in self.network.outputs.values())

    def replaced(self, function: Callable[[nn.Module], nn.Module]) -> CaffeModule:
        """With other modules for its steps, which `function` gives for each."""
        self._steps = [(function(module), step) for module, step in self._steps]
        return self

    def _check(self, inputs: tuple[Tensor, ...]) -> None:
        """Shapes that are not those of the file must go through the whole network."""
        shapes = {name: tuple(given.shape) for name, given in zip(self.network.inputs, inputs, strict=True)}
        if shapes == self.network.input_shapes:
            return
        for name, shape in shapes.items():
            if len(shape) != len(self.network.input_shapes[name]):
                wanted = shown(self.network.input_shapes[name])
                raise UsageError(f"input {name} has the shape {shown(shape)}; the network takes {wanted}")
        try:
            reshaped(self.network, shapes)
        except InvalidFile as error:  # the file is right; these shapes are not
            raise UsageError(error.message, error.hint) from error

    def _free_name(self, name: str) -> str:
        name = name.replace(".", "_") or "layer"
        while hasattr(self, name):
            name += "_"
        return name


def _suit(inputs: tuple[Tensor, ...], device: torch.device) -> bool:
    return all(each.device.type == device.type and each.dtype == torch.float32 for each in inputs)


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

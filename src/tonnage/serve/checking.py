"""Compares a request with the configuration of its model, before it waits for anybody."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tonnage.serve.configuration import ModelConfiguration, TensorSpec
from tonnage.serve.datatypes import BYTES, ITEM_BYTES, Tensor, count_strings
from tonnage.serve.errors import InvalidRequest
from tonnage.serve.requests import Request


class Checker:
    """Knows the tensors of one model."""

    def __init__(self, configuration: ModelConfiguration) -> None:
        self._configuration = configuration
        self._inputs = {spec.name: spec for spec in configuration.inputs}
        self._needed = tuple(spec.name for spec in configuration.inputs if not spec.optional)
        self._places = {spec.name: place for place, spec in enumerate(configuration.inputs)}
        self._outputs = {spec.name for spec in configuration.outputs}
        self._first = int(configuration.has_batches)
        self._reshapes = any(spec.reshape is not None for spec in configuration.inputs)

    def check(self, request: Request) -> None:
        """Sets the rows and the key of the request, and puts its inputs into the order of the model."""
        inputs = request.inputs
        for tensor in inputs:
            self._check_input(tensor)
        self._check_names(inputs)
        if len(inputs) > 1:
            inputs.sort(key=lambda tensor: self._places[tensor.name])
        self._check_outputs(request)
        wanted = () if request.outputs is None else tuple([each.name for each in request.outputs])
        if not self._first:
            request.key = (id(request),)
        else:
            request.rows = self._rows(inputs)
            request.key = (*[(each.name, each.shape[1:]) for each in inputs], wanted)
        if self._reshapes:
            request.inputs = [self._reshaped(each) for each in inputs]

    def _check_input(self, tensor: Tensor) -> None:
        spec = self._inputs.get(tensor.name)
        if spec is None:
            known = ", ".join(self._inputs)
            raise InvalidRequest(f"{self._configuration.name} has no input {tensor.name!r}; its inputs are {known}")
        if tensor.datatype != spec.datatype:
            raise InvalidRequest(f"input {tensor.name!r} is {tensor.datatype}; the model takes {spec.datatype}")
        shape = tensor.shape
        if len(shape) < self._first or (
            shape[self._first :] != spec.dims and not _fits(shape[self._first :], spec.dims)
        ):
            wanted = self._configuration.shape_of(spec)
            raise InvalidRequest(f"input {tensor.name!r} has the shape {list(shape)}; the model takes {wanted}")
        self._check_bytes(tensor)

    def _check_bytes(self, tensor: Tensor) -> None:
        elements = prod(tensor.shape)
        if tensor.datatype == BYTES:
            found = count_strings(tensor.data)
            if found != elements:
                told = "lengths that point outside of it" if found < 0 else f"{found} strings"
                raise InvalidRequest(
                    f"input {tensor.name!r} has {told}; its shape {list(tensor.shape)} needs {elements}"
                )
        elif len(tensor.data) != elements * ITEM_BYTES[tensor.datatype]:
            raise InvalidRequest(
                f"input {tensor.name!r} has {len(tensor.data)} bytes; {tensor.datatype} of the shape {list(tensor.shape)} "
                f"needs {elements * ITEM_BYTES[tensor.datatype]}"
            )

    def _check_names(self, inputs: list[Tensor]) -> None:
        names = {tensor.name for tensor in inputs}
        if len(names) < len(inputs):
            twice = next(
                each.name for place, each in enumerate(inputs) if each.name in [one.name for one in inputs[:place]]
            )
            raise InvalidRequest(f"input {twice!r} is given twice")
        for name in self._needed:
            if name not in names:
                raise InvalidRequest(
                    f"{self._configuration.name} needs the input {name!r}, which the request does not have"
                )

    def _check_outputs(self, request: Request) -> None:
        for wanted in request.outputs or ():
            if wanted.name not in self._outputs:
                known = ", ".join(self._outputs)
                raise InvalidRequest(
                    f"{self._configuration.name} has no output {wanted.name!r}; its outputs are {known}"
                )

    def _rows(self, inputs: list[Tensor]) -> int:
        rows = inputs[0].shape[0] if inputs else 1
        for tensor in inputs:
            if tensor.shape[0] != rows:
                raise InvalidRequest(f"input {tensor.name!r} has {tensor.shape[0]} rows, {inputs[0].name!r} has {rows}")
        if not 1 <= rows <= self._configuration.max_batch_size:
            most = self._configuration.max_batch_size
            raise InvalidRequest(f"a batch of {rows} is impossible; {self._configuration.name} takes 1 to {most}")
        return rows

    def _reshaped(self, tensor: Tensor) -> Tensor:
        spec: TensorSpec = self._inputs[tensor.name]
        if spec.reshape is None:
            return tensor
        return replace(tensor, shape=_other_shape(tensor.shape, self._first, spec.dims, spec.reshape))


def _fits(shape: tuple[int, ...], dims: tuple[int, ...]) -> bool:
    return len(shape) == len(dims) and all(dim in (size, -1) for size, dim in zip(shape, dims, strict=True))


def _other_shape(
    shape: tuple[int, ...], first: int, before: tuple[int, ...], after: tuple[int, ...]
) -> tuple[int, ...]:
    """Sizes that are open keep their order from one shape to the other."""
    free = iter([size for size, dim in zip(shape[first:], before, strict=False) if dim == -1])
    return (*shape[:first], *(next(free, 1) if dim == -1 else dim for dim in after))

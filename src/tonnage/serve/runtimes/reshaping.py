"""Outputs that clients see in another shape than the model makes them in."""

from __future__ import annotations

from tonnage.serve.configuration import ModelConfiguration, TensorSpec
from tonnage.serve.runtimes import Arrays, Runtime


class Reshaped:
    """A runtime whose outputs have the `dims` of the configuration instead of the `reshape` that the model makes."""

    def __init__(self, runtime: Runtime, configuration: ModelConfiguration) -> None:
        self._runtime, self._first = runtime, int(configuration.has_batches)
        self._specs = {spec.name: spec for spec in configuration.outputs if spec.reshape is not None}
        self.inputs, self.outputs = runtime.inputs, runtime.outputs
        self.batch_axis, self.most_rows = runtime.batch_axis, runtime.most_rows

    def run(self, inputs: Arrays, wanted: tuple[str, ...]) -> Arrays:
        made = self._runtime.run(inputs, wanted)
        for name in self._specs.keys() & made.keys():
            array = made[name]
            rows, rest = array.shape[: self._first], array.shape[self._first :]
            made[name] = array.reshape((*rows, *shown(self._specs[name], rest)))
        return made


def shown(spec: TensorSpec, made: tuple[int, ...]) -> tuple[int, ...]:
    """Sizes that are open take those of the open axes of what was made, in their order."""
    reshape = spec.reshape or ()
    sizes = iter(size for size, dim in zip(made, reshape, strict=False) if dim == -1)
    return tuple(next(sizes, -1) if dim == -1 else dim for dim in spec.dims)

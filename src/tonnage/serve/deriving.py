"""Completes a configuration from what the file of the model says, and compares the two where both say something."""

from __future__ import annotations

from dataclasses import replace

from tonnage.errors import InvalidFile
from tonnage.serve.configuration import Batching, ModelConfiguration, TensorSpec
from tonnage.serve.runtimes import Runtime

DEFAULT_BATCH_SIZE = 32  # of a model whose file leaves it open and whose configuration says nothing


def completed(configuration: ModelConfiguration, runtime: Runtime) -> ModelConfiguration:
    """Raises `InvalidFile` where the configuration contradicts the model."""
    if runtime.batch_axis and not configuration.inputs and not configuration.max_batch_size:
        most = min(runtime.most_rows or DEFAULT_BATCH_SIZE, DEFAULT_BATCH_SIZE)
        configuration = replace(configuration, max_batch_size=most, batching=configuration.batching or Batching())
    if runtime.most_rows and configuration.max_batch_size > runtime.most_rows:
        raise InvalidFile(
            f"max_batch_size of {configuration.name} is {configuration.max_batch_size}, but its file takes at most "
            f"{runtime.most_rows} rows"
        )
    inputs = _specs(configuration, configuration.inputs, runtime.inputs, "input", all_needed=True)
    outputs = _specs(configuration, configuration.outputs, runtime.outputs, "output", all_needed=False)
    return replace(configuration, inputs=inputs, outputs=outputs)


def _specs(
    configuration: ModelConfiguration,
    told: tuple[TensorSpec, ...],
    found: tuple[TensorSpec, ...],
    what: str,
    *,
    all_needed: bool,
) -> tuple[TensorSpec, ...]:
    if not told:
        return tuple(_without_batch(spec, configuration, what) for spec in found if not spec.optional)
    by_name = {spec.name: spec for spec in found}
    for spec in told:
        if spec.name not in by_name:
            raise InvalidFile(f"{configuration.name} has no {what} {spec.name!r}; its file has {', '.join(by_name)}")
        _compare(spec, by_name[spec.name], configuration, what)
    missing = {spec.name for spec in found if not spec.optional} - {spec.name for spec in told}
    if all_needed and missing:
        raise InvalidFile(
            f"the configuration of {configuration.name} lacks the {what} {sorted(missing)[0]!r} of its file"
        )
    return told


def _without_batch(spec: TensorSpec, configuration: ModelConfiguration, what: str) -> TensorSpec:
    if not configuration.has_batches:
        return spec
    if not spec.dims or spec.dims[0] != -1:
        raise InvalidFile(
            f"{configuration.name}: the {what} {spec.name!r} has the shape {list(spec.dims)}, which holds no batch",
            "set max_batch_size to 0",
        )
    return replace(spec, dims=spec.dims[1:])


def _compare(told: TensorSpec, found: TensorSpec, configuration: ModelConfiguration, what: str) -> None:
    name = f"{what} {told.name!r} of {configuration.name}"
    if told.datatype != found.datatype:
        raise InvalidFile(f"{name} is {told.datatype} in the configuration and {found.datatype} in the file")
    if told.optional and not found.optional:
        raise InvalidFile(f"{name} is optional in the configuration, but the file cannot do without it")
    if what == "output" and not found.dims:
        return  # a single value, or a shape that the file does not tell
    dims = told.reshape if told.reshape is not None else told.dims
    whole = (-1, *dims) if configuration.has_batches else dims
    same_rank = len(whole) == len(found.dims)
    if not same_rank or any(-1 not in (a, b) and a != b for a, b in zip(whole, found.dims, strict=True)):
        raise InvalidFile(f"{name} has the shape {list(whole)} in the configuration and {list(found.dims)} in the file")
    if configuration.has_batches and found.dims[0] != -1:
        raise InvalidFile(
            f"{name} holds {found.dims[0]} rows in the file, whatever the batch", "set max_batch_size to 0"
        )

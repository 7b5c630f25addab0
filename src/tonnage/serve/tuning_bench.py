"""Measures a model with so many instances and such batches: starts them, and asks without pause for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from tonnage.errors import UsageError
from tonnage.serve.configuration import ModelConfiguration, TensorSpec
from tonnage.serve.datatypes import BYTES, DTYPES, Tensor, as_bytes, join_strings
from tonnage.serve.errors import ServingError
from tonnage.serve.instance_process import InstanceProcess
from tonnage.serve.nursery import Nurseries
from tonnage.serve.places import places_of
from tonnage.serve.repository import ModelFolder
from tonnage.serve.requests import Answer, Request, now
from tonnage.serve.runtimes import with_model_file
from tonnage.serve.served_version import ServedVersion
from tonnage.serve.tuning import Measured

_WARM_SECONDS = 0.5
_STEP_SECONDS = 0.02
_FEWEST_ANSWERS = 20  # a quantile of fewer says nothing
_LONGEST_SECONDS = 60.0  # that slow models get for these, beyond what was asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBench:
    """The newest version of a folder, with nothing between clients and its queue."""

    folder: ModelFolder
    seconds: float
    gpus: tuple[int, ...] = ()
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    _nurseries: Nurseries = field(default_factory=Nurseries)

    async def learn(self, configuration: ModelConfiguration) -> ModelConfiguration:
        version = self._version(replace(configuration, groups=(replace(configuration.groups[0], count=1),)))
        try:
            await version.load()
            found = version.configuration
        finally:
            await version.close()
        for name in self.shapes:
            if name not in {spec.name for spec in found.inputs}:
                known = ", ".join(spec.name for spec in found.inputs)
                raise UsageError(f"--shape {name}: {found.name} has no such input", f"its inputs are {known}")
        list(example(found, self.shapes))  # raises where sizes are missing
        return found

    async def measure(self, configuration: ModelConfiguration, clients: int) -> Measured:
        version = self._version(configuration)
        try:
            await version.load()
            return await _drive(version, clients, self.seconds, list(example(version.configuration, self.shapes)))
        finally:
            await version.close()

    def _version(self, configuration: ModelConfiguration) -> ServedVersion:
        chosen = configuration.versions.chosen(list(self.folder.versions))
        if not chosen:
            raise UsageError(f"{self.folder.path} has no version that its configuration asks for")
        settings, path = with_model_file(configuration, self.folder.versions[chosen[-1]])
        make = partial(InstanceProcess, nurseries=self._nurseries)
        places = places_of(settings, self.gpus)
        return ServedVersion(settings, chosen[-1], settings.backend, path, places, make_instance=make)

    async def close(self) -> None:
        await self._nurseries.close()


class _Load:
    """So many clients, each of which asks again as soon as it is answered."""

    def __init__(self, version: ServedVersion, inputs: list[Tensor]) -> None:
        self._version, self._inputs = version, inputs
        self._rows = _rows(version.configuration, inputs)
        self.times: list[float] = []
        self.answers = 0
        self.is_over = False
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def rows(self) -> int:
        return self._rows * len(self.times)

    def ask(self) -> None:
        began = now()

        def answer(result: Answer) -> None:
            if self.is_over:
                return
            if isinstance(result, ServingError):
                self.is_over = True
                self.failed.set_exception(result)
                return
            self.answers += 1
            self.times.append(now() - began)
            self.ask()

        request = Request(self._version.configuration.name, "", list(self._inputs), answer, arrived=began)
        self._version.checker.check(request)
        self._version.submit(request)


async def _drive(version: ServedVersion, clients: int, seconds: float, inputs: list[Tensor]) -> Measured:
    load = _Load(version, inputs)
    for _ in range(clients):
        load.ask()
    try:
        await _until(load, _WARM_SECONDS, clients)
        load.times, began = [], now()
        await _until(load, seconds, _FEWEST_ANSWERS)
        measured = Measured(load.rows, now() - began, load.times)
    finally:
        load.is_over = True
    if not measured.times:
        raise UsageError(f"nothing was answered within {seconds + _LONGEST_SECONDS:g} s")
    return measured


async def _until(load: _Load, seconds: float, answers: int) -> None:
    """So long, and until so many have been answered since."""
    wanted, latest = load.answers + answers, now() + seconds + _LONGEST_SECONDS
    done, _ = await asyncio.wait([load.failed], timeout=seconds)
    while not done and load.answers < wanted and now() < latest:
        done, _ = await asyncio.wait([load.failed], timeout=_STEP_SECONDS)
    if done:
        load.failed.result()


def _rows(configuration: ModelConfiguration, inputs: list[Tensor]) -> int:
    """Of one request. The first axis of a Caffe network is that of the batch, whether it is open or not."""
    has_rows = configuration.has_batches or configuration.backend == "caffe"
    return inputs[0].shape[0] if has_rows and inputs and inputs[0].shape else 1


def example(configuration: ModelConfiguration, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[Tensor]:
    """One row, of numbers such as a client might send."""
    chance = np.random.default_rng(0)
    for spec in configuration.inputs:
        shape = _shape(configuration, spec, shapes)
        if spec.datatype == BYTES:
            data = join_strings([b"text"] * int(np.prod(shape)))
        elif spec.datatype.startswith(("FP", "BF")):
            data = as_bytes(chance.standard_normal(shape).astype("<f4"), spec.datatype)
        else:
            data = chance.integers(0, 2, shape).astype(DTYPES[spec.datatype]).tobytes()
        yield Tensor(spec.name, spec.datatype, shape, data)


def _shape(
    configuration: ModelConfiguration, spec: TensorSpec, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[int, ...]:
    """As it was given, else as the model has it, with one row."""
    shape = shapes.get(spec.name) or ((1, *spec.dims) if configuration.has_batches else spec.dims)
    if min(shape, default=1) < 0:
        wanted = ",".join(str(size) if size > 0 else "N" for size in shape)
        raise UsageError(
            f"{configuration.name} takes its input {spec.name!r} in any size: {list(shape)}",
            f"say which: --shape {spec.name}={wanted}, with numbers",
        )
    return shape

"""Finds out how many instances and how large batches suit a model on this machine: tries them, and says which is
best.

Classic Caffe networks run a batch row by row, so more instances help them where larger batches do not; others are the
reverse. Nobody knows without trying.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tonnage.errors import TonnageError, UsageError
from tonnage.serve.configuration import Batching, InstanceGroup, ModelConfiguration
from tonnage.serve.configuration_file import read_configuration
from tonnage.serve.datatypes import BYTES, DTYPES, Tensor, as_bytes, join_strings
from tonnage.serve.errors import ServingError
from tonnage.serve.places import places_of
from tonnage.serve.repository import ModelFolder
from tonnage.serve.requests import Answer, Request, now
from tonnage.serve.runtimes import with_model_file
from tonnage.serve.served_version import ServedVersion

_WARM_SECONDS = 0.5
_SAME = 0.97  # of the best: not worth more instances or longer waits


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One combination: what it brought, or why it could not be tried."""

    instances: int
    batch: int
    rows_second: float = 0.0
    median_seconds: float = 0.0
    p99_seconds: float = 0.0
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    model: str
    trials: tuple[Trial, ...]
    best: Trial
    configuration: ModelConfiguration  # with the best in it


async def tune(
    folder: ModelFolder,
    *,
    instances: Sequence[int],
    batches: Sequence[int],
    seconds: float,
    gpus: tuple[int, ...] = (),
    shapes: dict[str, tuple[int, ...]] | None = None,
    most_p99_seconds: float | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Tuned:
    """Tries all combinations with the newest version. Raises `UsageError` where none can be tried."""
    base = read_configuration(folder)
    trials, found = [], {}
    for count in instances:
        for batch in batches:
            progress(f"{folder.name}: {count} instances, batches of {batch}")
            trial, configuration = await _try(folder, base, count, batch, seconds, gpus, shapes or {})
            trials.append(trial)
            found[trial] = configuration
    best = _best(trials, most_p99_seconds)
    if best is None:
        raise UsageError(f"{folder.name} could not be tried: {trials[0].problem}" if trials else "nothing to try")
    return Tuned(model=folder.name, trials=tuple(trials), best=best, configuration=found[best])


def _best(trials: Sequence[Trial], most_p99_seconds: float | None) -> Trial | None:
    """The simplest of those that are about as fast as the fastest."""
    usable = [each for each in trials if not each.problem]
    in_time = [each for each in usable if most_p99_seconds is None or each.p99_seconds <= most_p99_seconds]
    if not usable:
        return None
    if not in_time:
        raise UsageError(
            f"no combination answers 99 % within {most_p99_seconds:g} s",
            f"the quickest needs {min(each.p99_seconds for each in usable):.3g} s",
        )
    most = max(each.rows_second for each in in_time)
    close = [each for each in in_time if each.rows_second >= _SAME * most]
    return min(close, key=lambda each: (each.instances * each.batch, each.p99_seconds))


async def _try(
    folder: ModelFolder,
    base: ModelConfiguration,
    count: int,
    batch: int,
    seconds: float,
    gpus: tuple[int, ...],
    shapes: dict[str, tuple[int, ...]],
) -> tuple[Trial, ModelConfiguration]:
    settings = with_settings(base, count, batch)
    version = None
    try:
        number = max(settings.versions.chosen(list(folder.versions)))
        settings, path = with_model_file(settings, folder.versions[number])
        version = ServedVersion(settings, number, settings.backend, path, places_of(settings, gpus))
        await version.load()
        if version.configuration.max_batch_size < batch and batch > 1:
            raise UsageError("its tensors hold no batch")
        rows, times = await _drive(version, 2 * count * batch, seconds, shapes)
    except TonnageError as error:
        return Trial(instances=count, batch=batch, problem=error.message), settings
    finally:
        if version is not None:
            await version.close()
    trial = Trial(
        instances=count,
        batch=batch,
        rows_second=rows / seconds,
        median_seconds=float(np.quantile(times, 0.5)),
        p99_seconds=float(np.quantile(times, 0.99)),
    )
    return trial, settings


def with_settings(base: ModelConfiguration, count: int, batch: int) -> ModelConfiguration:
    """The same model with so many instances and batches. A batch of one leaves a model without batches as it is; what
    the configuration says about waiting stays."""
    groups = tuple(replace(group, count=count) for group in base.groups) or (InstanceGroup(count=count),)
    batching = base.batching or (Batching() if batch > 1 else None)
    if batching is not None:
        sizes = tuple(size for size in batching.preferred_sizes if size <= batch)
        batching = replace(batching, preferred_sizes=sizes)
    most = batch if batch > 1 or base.has_batches else 0
    return replace(base, groups=groups, max_batch_size=most, batching=batching)


class _Load:
    """So many clients, each of which asks again as soon as it is answered."""

    def __init__(self, version: ServedVersion, inputs: list[Tensor], clients: int) -> None:
        self._version, self._inputs, self._clients = version, inputs, clients
        self._loop = asyncio.get_running_loop()
        self.times: list[float] = []
        self.rows = 0
        self.is_counting = False
        self._is_over = False
        self.failed: asyncio.Future[None] = self._loop.create_future()

    def begin(self) -> None:
        for _ in range(self._clients):
            self._ask()

    def end(self) -> None:
        self._is_over = True

    def _ask(self) -> None:
        began = now()

        def answer(result: Answer) -> None:
            if isinstance(result, ServingError):
                if not self.failed.done():
                    self.failed.set_exception(result)
                return
            if self.is_counting:
                self.times.append(now() - began)
                self.rows += request.rows
            if not self._is_over:
                self._ask()

        request = Request(self._version.configuration.name, "", list(self._inputs), answer, arrived=began)
        self._version.checker.check(request)
        self._version.submit(request)


async def _drive(
    version: ServedVersion, clients: int, seconds: float, shapes: dict[str, tuple[int, ...]]
) -> tuple[int, list[float]]:
    """Rows that were answered, and how long each request took."""
    load = _Load(version, list(_example(version.configuration, shapes)), clients)
    load.begin()
    for is_counting, duration in ((False, _WARM_SECONDS), (True, seconds)):
        load.is_counting = is_counting
        await asyncio.wait([load.failed], timeout=duration)
        if load.failed.done():
            load.failed.result()
    load.is_counting = False
    load.end()
    if not load.times:
        raise UsageError(f"nothing was answered within {seconds:g} s", "give it longer: --seconds")
    return load.rows, load.times


def _example(configuration: ModelConfiguration, shapes: dict[str, tuple[int, ...]]) -> Iterator[Tensor]:
    """One row, of numbers such as a client might send."""
    chance = np.random.default_rng(0)
    for spec in configuration.inputs:
        shape = shapes.get(spec.name, tuple(configuration.shape_of(spec)))
        shape = (1, *shape[1:]) if configuration.has_batches and shape[0] == -1 else shape
        if min(shape, default=1) < 0:
            raise UsageError(
                f"the input {spec.name!r} is of any size: {list(shape)}", f"--shape {spec.name}=1,3,224,224"
            )
        if spec.datatype == BYTES:
            data = join_strings([b"text"] * int(np.prod(shape)))
        elif spec.datatype.startswith(("FP", "BF")):
            data = as_bytes(chance.standard_normal(shape).astype("<f4"), spec.datatype)
        else:
            data = chance.integers(0, 2, shape).astype(DTYPES[spec.datatype]).tobytes()
        yield Tensor(spec.name, spec.datatype, shape, data)

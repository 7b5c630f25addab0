"""Finds out how many instances and how large batches suit a model on this machine: tries them, and says which is
best.

Classic Caffe networks run a batch row by row, so more instances help them where larger batches do not; others are the
reverse. Nobody knows without trying. How a combination is measured is up to a `Bench`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Protocol

import numpy as np

from tonnage.errors import InvalidFile, TonnageError
from tonnage.serve.configuration import Batching, ModelConfiguration, QueuePolicy

_SAME = 0.97  # of the best: not worth more instances or longer waits


@dataclass(frozen=True, slots=True)
class Measured:
    """What clients that ask without pause got."""

    rows: int
    seconds: float
    times: list[float]  # of each request


class Bench(Protocol):
    async def learn(self, configuration: ModelConfiguration) -> ModelConfiguration:
        """Completed from the file of the model."""
        ...

    async def measure(self, configuration: ModelConfiguration, clients: int) -> Measured: ...

    async def close(self) -> None: ...


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
    """`best` is None where nothing could be tried, or nothing was quick enough."""

    before: ModelConfiguration
    trials: tuple[Trial, ...]
    best: Trial | None

    @property
    def configuration(self) -> ModelConfiguration:
        """With the best in it."""
        return self.before if self.best is None else with_settings(self.before, self.best.instances, self.best.batch)


async def tune(
    base: ModelConfiguration,
    bench: Bench,
    *,
    instances: Sequence[int],
    batches: Sequence[int],
    most_p99_seconds: float | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Tuned:
    """Tries all combinations, and closes the bench. Raises what the bench raises where the model cannot even be loaded."""
    try:
        return await _tuned(base, bench, instances, batches, most_p99_seconds, progress)
    finally:
        await bench.close()


async def _tuned(
    base: ModelConfiguration,
    bench: Bench,
    instances: Sequence[int],
    batches: Sequence[int],
    most_p99_seconds: float | None,
    progress: Callable[[str], None],
) -> Tuned:
    progress(f"{base.name}: loading")
    whole = await bench.learn(base)
    before = replace(base, max_batch_size=whole.max_batch_size, backend=whole.backend)
    refused: dict[int, str] = {}  # batches that cannot be loaded even with the fewest instances
    trials: list[Trial] = []
    for count, batch in product(instances, batches):
        progress(f"{base.name}: {count} x batch {batch}, {len(trials) + 1} of {len(instances) * len(batches)}")
        if batch in refused:
            trials.append(Trial(instances=count, batch=batch, problem=refused[batch]))
            continue
        try:
            trials.append(await _try(before, bench, count, batch))
        except TonnageError as error:
            trials.append(Trial(instances=count, batch=batch, problem=error.message))
            if isinstance(error, InvalidFile) and count == instances[0]:
                refused[batch] = error.message
    return Tuned(before=before, trials=tuple(trials), best=best_of(trials, most_p99_seconds))


def best_of(trials: Sequence[Trial], most_p99_seconds: float | None = None) -> Trial | None:
    """The simplest of those that are about as fast as the fastest."""
    in_time = [
        each
        for each in trials
        if not each.problem and (most_p99_seconds is None or each.p99_seconds <= most_p99_seconds)
    ]
    most = max((each.rows_second for each in in_time), default=0.0)
    close = [each for each in in_time if each.rows_second >= _SAME * most]
    return min(close, key=lambda each: (each.instances * each.batch, each.p99_seconds), default=None)


def with_settings(base: ModelConfiguration, count: int, batch: int) -> ModelConfiguration:
    """The same model with so many instances in each group, and batches. Without batches requests run one by one, and may
    still have as many rows as before."""
    base = replace(base, groups=tuple(replace(group, count=count) for group in base.groups))
    if batch > 1:
        batching = replace(base.batching or Batching(), preferred_sizes=())
        return replace(base, max_batch_size=batch, batching=batching)
    if base.batching is None or not _has_queue(base):
        return replace(base, batching=None)
    return replace(base, max_batch_size=1, batching=replace(base.batching, preferred_sizes=()))


def _has_queue(configuration: ModelConfiguration) -> bool:
    """Priorities and limits are part of what is written about batches, and would be lost without."""
    return bool(configuration.priority_levels or configuration.level_policies) or configuration.queue != QueuePolicy()


async def _try(base: ModelConfiguration, bench: Bench, count: int, batch: int) -> Trial:
    # Limits of the queue are for other times: here clients fill it on purpose.
    settings = replace(with_settings(base, count, batch), queue=QueuePolicy(), level_policies={})
    measured = await bench.measure(settings, clients=2 * count * batch)
    return Trial(
        instances=count,
        batch=batch,
        rows_second=measured.rows / measured.seconds,
        median_seconds=float(np.quantile(measured.times, 0.5)),
        p99_seconds=float(np.quantile(measured.times, 0.99)),
    )

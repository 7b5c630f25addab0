"""Makes a time model from the benchmark database: kernels, host, energy, bounds.

What the database says nothing about stays as it was in the model that the fit starts from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from tonnage.benchmark.fit_copies import Copy, fit_copies
from tonnage.benchmark.fit_energy import fit_energy
from tonnage.benchmark.fit_host import LEAST_SAMPLES, fit_host
from tonnage.benchmark.fit_kernels import fit_kernels
from tonnage.benchmark.fit_spreads import fit_spreads
from tonnage.benchmark.kernel_samples import Sample, database_samples, is_host_copy
from tonnage.benchmark.observed_steps import OBSERVED_STEPS, observed_step
from tonnage.benchmark.step_samples import StepSample
from tonnage.errors import NotFound
from tonnage.estimate.time_model import TimeModel
from tonnage.hardware import find_gpu
from tonnage.store.database import Database
from tonnage.store.rows import HostRow, KernelRow, Measurement, Spread, Status

Progress = Callable[[str], None]
# Operators on long lists cost by their lists, which is counted apart.
_MOST_INPUTS = 16


def fit_time_model(
    kernels: Sequence[Sample],
    steps: Sequence[StepSample],
    operators: Mapping[str, float],
    start: TimeModel,
    *,
    fitted: Mapping[str, Any],
    measured: Mapping[str, Mapping[str, float]] | None = None,
    copies: Sequence[Copy] = (),
    programs: Sequence[StepSample] = (),
    progress: Progress = lambda text: None,
) -> TimeModel:
    """All parts, one after the other: each later part takes the earlier ones as given. `measured` is added as it is.
    `steps` are sample workloads, `programs` real ones; where there are any, bounds are for those."""
    samples = [*steps, *programs]
    start = replace(start, copies=fit_copies(copies, start.copies), measured=measured or {}, fitted=fitted)
    model = fit_parts(kernels, samples, operators, start, progress)
    if len(samples) < LEAST_SAMPLES:
        return model
    progress("calibrating bounds")
    return replace(model, spreads=fit_spreads(programs or steps, model))


def fit_parts(
    kernels: Sequence[Sample],
    steps: Sequence[StepSample],
    operators: Mapping[str, float],
    start: TimeModel,
    progress: Progress = lambda text: None,
) -> TimeModel:
    """Kernels, host and energy, without bounds; few steps change neither host nor energy."""
    progress(f"fitting kernels to {len(kernels):,} samples")
    model = replace(start, kernels=fit_kernels(kernels, start.kernels.constants))
    if len(steps) < LEAST_SAMPLES:
        return model
    progress(f"fitting the host to {len(steps)} steps")
    model = replace(model, host=fit_host(steps, model.kernels, start.host, operators))
    if sum(1 for step in steps if step.energy_joules and step.busy_seconds) >= LEAST_SAMPLES:
        model = replace(model, energy=fit_energy(steps, start.energy))
    return model


def read_kernels(database: Database) -> list[Sample]:
    """Samples of GPUs that the catalogue knows, under the names that it has for them."""
    return [
        replace(sample, gpu=find_gpu(sample.gpu).name) for sample in database_samples(database) if is_known(sample.gpu)
    ]


def read_steps(database: Database) -> list[StepSample]:
    """Steps of sample workloads that were timed and observed."""
    hosts = _by_key(database.hosts(status=Status.OK))
    kernels = _by_key(database.kernels(status=Status.OK))
    found = []
    for environment, measurement in database.measurements(status=Status.OK):
        key = (environment.gpu, measurement.key)
        timed = measurement.step_seconds is not None and not is_layer(measurement.family)
        if timed and key in hosts and is_known(environment.gpu):
            found.append(_step_sample(environment.gpu, measurement, hosts[key], kernels.get(key, [])))
    return found


def _by_key(rows: Iterable[tuple[Any, str, Any]]) -> dict[tuple[str, str], list[Any]]:
    found: dict[tuple[str, str], list[Any]] = {}
    for environment, key, row in rows:
        found.setdefault((environment.gpu, key), []).append(row)
    return found


@cache
def is_known(gpu: str) -> bool:
    """Is it in the catalogue?"""
    try:
        find_gpu(gpu)
    except NotFound:
        return False
    return True


def _step_sample(
    gpu: str, measurement: Measurement, hosts: Sequence[HostRow], kernels: Sequence[KernelRow]
) -> StepSample:
    busy = sum(row.seconds.mean * row.calls for row in kernels if not is_host_copy(row.kernel))
    assert measurement.step_seconds is not None  # the caller's condition
    energy, power = measurement.energy_joules_step, measurement.power_watts
    return StepSample(
        name=measurement.key,
        family=measurement.family,
        gpu=find_gpu(gpu),
        step=observed_step(measurement, hosts),
        step_seconds=measurement.step_seconds.mean,
        forward_seconds=_mean(measurement.forward_seconds),
        backward_seconds=_mean(measurement.backward_seconds),
        optimizer_seconds=_mean(measurement.optimizer_seconds),
        busy_seconds=busy / OBSERVED_STEPS or None,
        energy_joules=energy,
        energy_step_seconds=energy / power if energy and power else None,
    )


def _mean(spread: Spread | None) -> float | None:
    return None if spread is None else spread.mean


class OperatorCost(NamedTuple):
    """What one operator of one measurement cost the host."""

    family: str
    key: str
    operator: str
    seconds: float


def read_operator_costs(database: Database) -> list[OperatorCost]:
    """Of hosts of GPUs that the catalogue knows, without operators that cost by their lists."""
    families = {m.key: m.family for _, m in database.measurements(status=Status.OK)}
    return [
        OperatorCost(families[key], key, row.operator.name, row.seconds.mean)
        for environment, key, row in database.hosts(status=Status.OK)
        if is_known(environment.gpu)
        and len(row.operator.inputs) < _MOST_INPUTS
        and not row.operator.name.startswith("tonnage::")
    ]


def operator_seconds(costs: Iterable[OperatorCost]) -> dict[str, float]:
    """What each operator costs the host. Single layers were observed under the profiler, which makes everything slower:
    they tell about operators that no workload has, scaled by those that both have."""
    found: dict[bool, dict[str, list[float]]] = {True: {}, False: {}}
    for cost in costs:
        found[is_layer(cost.family)].setdefault(cost.operator, []).append(cost.seconds)
    single, whole = (
        {name: float(np.median(seconds)) for name, seconds in found[layers].items()} for layers in (True, False)
    )
    both = [name for name in single if name in whole]
    ratio = float(np.median([whole[name] / single[name] for name in both])) if both else 1.0
    return {name: seconds * ratio for name, seconds in single.items()} | whole


def is_layer(family: str) -> bool:
    """Single layers teach about kernels; they are no steps."""
    return family.startswith("layer:")

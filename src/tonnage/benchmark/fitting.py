"""Makes a time model from the benchmark database: kernels, host, energy, bounds.

What the database says nothing about stays as it was in the model that the fit starts from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

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
_LAYER = "layer:"


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
    progress(f"fitting kernels to {len(kernels):,} samples")
    constants = start.kernels.constants
    model = replace(
        start,
        kernels=fit_kernels(kernels, constants),
        copies=fit_copies(copies, start.copies),
        measured=measured or {},
        fitted=fitted,
    )
    samples = [*steps, *programs]
    if len(samples) < LEAST_SAMPLES:
        return model
    progress(f"fitting the host to {len(samples)} steps")
    model = replace(model, host=fit_host(samples, model.kernels, start.host, operators))
    if sum(1 for step in samples if step.energy_joules) >= LEAST_SAMPLES:
        progress("fitting energy")
        model = replace(model, energy=fit_energy(samples, start.energy))
    progress("calibrating bounds")
    return replace(model, spreads=fit_spreads(programs or steps, model))


def read_kernels(database: Database) -> list[Sample]:
    """Samples of GPUs that the catalogue knows."""
    return [sample for sample in database_samples(database) if _is_known(sample.gpu)]


def read_steps(database: Database) -> list[StepSample]:
    """Steps of sample workloads that were timed and observed."""
    hosts = _by_key(database.hosts(status=Status.OK))
    kernels = _by_key(database.kernels(status=Status.OK))
    found = []
    for environment, measurement in database.measurements(status=Status.OK):
        key = (environment.gpu, measurement.key)
        timed = measurement.step_seconds is not None and not measurement.family.startswith(_LAYER)
        if timed and key in hosts and _is_known(environment.gpu):
            found.append(_step_sample(environment.gpu, measurement, hosts[key], kernels.get(key, [])))
    return found


def _by_key(rows: Iterable[tuple[Any, str, Any]]) -> dict[tuple[str, str], list[Any]]:
    found: dict[tuple[str, str], list[Any]] = {}
    for environment, key, row in rows:
        found.setdefault((environment.gpu, key), []).append(row)
    return found


def _is_known(gpu: str) -> bool:
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


def read_operator_costs(database: Database) -> dict[str, float]:
    """What each operator costs the host. Single layers were observed under the profiler, which makes everything slower:
    they tell about operators that no workload has, scaled by those that both have."""
    single, whole = _host_seconds(database, layers=True), _host_seconds(database, layers=False)
    both = [name for name in single if name in whole]
    ratio = float(np.median([whole[name] / single[name] for name in both])) if both else 1.0
    return {name: seconds * ratio for name, seconds in single.items()} | whole


def _host_seconds(database: Database, *, layers: bool) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    families = {m.key: m.family.startswith(_LAYER) for _, m in database.measurements(status=Status.OK)}
    for _, key, row in database.hosts(status=Status.OK):
        is_plain = len(row.operator.inputs) < _MOST_INPUTS and not row.operator.name.startswith("tonnage::")
        if is_plain and families.get(key) is layers:
            found.setdefault(row.operator.name, []).append(row.seconds.mean)
    return {name: float(np.median(seconds)) for name, seconds in found.items()}

"""Seconds of operators with the shapes that were measured, from the benchmark database."""

from __future__ import annotations

import statistics
from itertools import groupby
from typing import TYPE_CHECKING

from tonnage.benchmark.kernel_samples import is_host_copy
from tonnage.estimate.kernels.work import Rules
from tonnage.estimate.measured import digest
from tonnage.store.rows import KernelRow, Measurement, Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tonnage.store.database import Database


def measured_operators(database: Database) -> dict[str, dict[str, float]]:
    """By GPU and digest. An operator that was met in several measurements has the median of what it took."""
    rules = {(e.gpu, m.key): _rules(m) for e, m in database.measurements(status=Status.OK)}
    found: dict[str, dict[str, list[float]]] = {}
    rows = database.kernels(status=Status.OK)
    for (gpu, key), group in groupby(rows, key=lambda row: (row[0].gpu, row[1])):
        for name, seconds in _operators([row for _, _, row in group], rules[gpu, key]):
            found.setdefault(gpu, {}).setdefault(name, []).append(seconds)
    return {gpu: {n: float(f"{statistics.median(v):.4g}") for n, v in known.items()} for gpu, known in found.items()}


def _rules(measurement: Measurement) -> Rules:
    return Rules(matmul_tf32=measurement.structure.get("tf32") is True)


def _operators(rows: Sequence[KernelRow], rules: Rules) -> Iterable[tuple[str, float]]:
    """All kernels of a call together; calls with other kernels of the same operator count by how many they were."""
    seconds: dict[str, float] = {}
    calls: dict[str, int] = {}
    copies: set[str] = set()
    for row in rows:
        name = digest(row.operator, rules)
        if name is None:
            continue
        seconds[name] = seconds.get(name, 0.0) + row.seconds.mean * row.calls
        calls[name] = calls.get(name, 0) + (row.calls if row.position == 0 else 0)
        if is_host_copy(row.kernel):
            copies.add(name)
    return [(name, total / calls[name]) for name, total in seconds.items() if calls[name] and name not in copies]

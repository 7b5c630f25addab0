"""Fits copies between host and GPU to the single copies in the benchmark database."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tonnage.benchmark.extras import least_squares
from tonnage.errors import NotFound
from tonnage.estimate.copies import CopyModel
from tonnage.estimate.timeline import Floats
from tonnage.hardware import Gpu, find_gpu
from tonnage.program.trace import Operator
from tonnage.store.rows import Status

if TYPE_CHECKING:
    from tonnage.store.database import Database

FAMILY = "layer:copy"
_SMALL_BYTES = 4096
_LARGE_BYTES = 4 << 20
_LEAST = 3
_PRIOR = 0.1  # how strongly a number that the copies say nothing about stays where it was


class Copy(NamedTuple):
    """One measured copy."""

    direction: str
    pinned: bool
    nbytes: float
    seconds: float
    link_bytes_second: float


def read_copies(database: Database) -> list[Copy]:
    """All single copies of GPUs that the catalogue knows."""
    about = {(e.gpu, m.key): m.structure for e, m in database.measurements(family=FAMILY, status=Status.OK)}
    found = []
    for environment, key, row in database.kernels(family=FAMILY, status=Status.OK):
        structure, gpu = about.get((environment.gpu, key)), _gpu(environment.gpu)
        if structure is None or gpu is None or "Memcpy" not in row.kernel:
            continue
        nbytes = sum(spec.nbytes for spec in row.operator.outputs) or sum(
            spec.nbytes for spec in row.operator.inputs[:1] if spec is not None
        )
        link = float(gpu.cpu_link_bytes_second or gpu.pcie_bytes_second)
        found.append(
            Copy(str(structure["direction"]), structure["pinned"] is True, float(nbytes), row.seconds.mean, link)
        )
    return found


def _gpu(name: str) -> Gpu | None:
    try:
        return find_gpu(name)
    except NotFound:
        return None


def fit_copies(copies: Sequence[Copy], start: CopyModel) -> CopyModel:
    """What too few copies tell about stays as it was, and so do copies of pageable memory: a single one that is repeated
    finds its source in the host's cache, which the batches of a program do not."""
    shares = [c.nbytes / c.seconds / c.link_bytes_second for c in copies if c.pinned and c.nbytes > _LARGE_BYTES]
    return replace(
        start,
        link_share=statistics.median(shares) if len(shares) >= _LEAST else start.link_share,
        h2d_latency_seconds=_latency(copies, "h2d", start.h2d_latency_seconds),
        d2h_latency_seconds=_latency(copies, "d2h", start.d2h_latency_seconds),
    )


class Copied(NamedTuple):
    """All copies of a program's step in one direction, each with how often it happens, and what they took together."""

    gpu: Gpu
    operators: tuple[tuple[Operator, float], ...]
    seconds: float


def fit_program_copies(copied: Sequence[Copied], start: CopyModel) -> CopyModel:
    """Latencies, and what pageable memory reaches at each size, from the copies of real programs."""
    first = np.log(_values(start))

    def residuals(logarithms: Floats) -> Floats:
        model = _with_values(start, np.exp(logarithms).tolist())
        errors = [math.log(_seconds(one, model) / one.seconds) for one in copied]
        return np.array([*errors, *(_PRIOR * (logarithms - first))])

    return _with_values(start, np.exp(least_squares(residuals, first, loss="soft_l1", f_scale=0.1)).tolist())


def _seconds(copied: Copied, model: CopyModel) -> float:
    return sum(times * model.device_seconds(operator, copied.gpu) for operator, times in copied.operators)


def _values(model: CopyModel) -> list[float]:
    rates = [rate for _, rate in (*model.pageable_h2d, *model.pageable_d2h)]
    return [model.h2d_latency_seconds, model.d2h_latency_seconds, model.burst_seconds, *rates]


def _with_values(model: CopyModel, values: Sequence[float]) -> CopyModel:
    h2d_latency, d2h_latency, burst, *rates = values
    h2d, d2h = model.pageable_h2d, model.pageable_d2h
    return replace(
        model,
        h2d_latency_seconds=h2d_latency,
        d2h_latency_seconds=d2h_latency,
        burst_seconds=burst,
        pageable_h2d=tuple((size, rate) for (size, _), rate in zip(h2d, rates[: len(h2d)], strict=True)),
        pageable_d2h=tuple((size, rate) for (size, _), rate in zip(d2h, rates[len(h2d) :], strict=True)),
    )


def _latency(copies: Sequence[Copy], direction: str, before: float) -> float:
    small = [c.seconds for c in copies if c.direction == direction and c.nbytes <= _SMALL_BYTES]
    return statistics.median(small) if len(small) >= _LEAST else before

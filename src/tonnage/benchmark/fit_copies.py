"""Fits copies between host and GPU to the single copies in the benchmark database."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from tonnage.errors import NotFound
from tonnage.estimate.copies import CopyModel
from tonnage.hardware import Gpu, find_gpu
from tonnage.store.rows import Status

if TYPE_CHECKING:
    from tonnage.store.database import Database

FAMILY = "layer:copy"
_SMALL_BYTES = 4096
_LARGE_BYTES = 4 << 20
_NEAR = math.log(1.6)  # copies of up to so much more or less tell about a size
_LEAST = 3


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
    """What too few copies tell about stays as it was."""
    shares = [c.nbytes / c.seconds / c.link_bytes_second for c in copies if c.pinned and c.nbytes > _LARGE_BYTES]
    return replace(
        start,
        link_share=statistics.median(shares) if len(shares) >= _LEAST else start.link_share,
        h2d_latency_seconds=_latency(copies, "h2d", start.h2d_latency_seconds),
        d2h_latency_seconds=_latency(copies, "d2h", start.d2h_latency_seconds),
        pageable_h2d=_rates(copies, "h2d", start.pageable_h2d),
        pageable_d2h=_rates(copies, "d2h", start.pageable_d2h),
    )


def _latency(copies: Sequence[Copy], direction: str, before: float) -> float:
    small = [c.seconds for c in copies if c.direction == direction and c.nbytes <= _SMALL_BYTES]
    return statistics.median(small) if len(small) >= _LEAST else before


def _rates(
    copies: Sequence[Copy], direction: str, before: tuple[tuple[float, float], ...]
) -> tuple[tuple[float, float], ...]:
    """At each of the sizes the rate of copies that are about as large, the last one for all larger."""
    pageable = [c for c in copies if c.direction == direction and not c.pinned]
    found = []
    for number, (size, rate) in enumerate(before):
        is_last = number == len(before) - 1
        near = [
            c.nbytes / c.seconds
            for c in pageable
            if abs(math.log(c.nbytes / size)) < _NEAR or (is_last and c.nbytes > before[-2][0] * 1.6)
        ]
        found.append((size, statistics.median(near) if len(near) >= _LEAST else rate))
    return tuple(found)

"""Fits copies between host and GPU to the single copies in the benchmark database."""

from __future__ import annotations

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
    """What too few copies tell about stays as it was, and so do copies of pageable memory: a single one that is repeated
    finds its source in the host's cache, which the batches of a program do not."""
    shares = [c.nbytes / c.seconds / c.link_bytes_second for c in copies if c.pinned and c.nbytes > _LARGE_BYTES]
    return replace(
        start,
        link_share=statistics.median(shares) if len(shares) >= _LEAST else start.link_share,
        h2d_latency_seconds=_latency(copies, "h2d", start.h2d_latency_seconds),
        d2h_latency_seconds=_latency(copies, "d2h", start.d2h_latency_seconds),
    )


def _latency(copies: Sequence[Copy], direction: str, before: float) -> float:
    small = [c.seconds for c in copies if c.direction == direction and c.nbytes <= _SMALL_BYTES]
    return statistics.median(small) if len(small) >= _LEAST else before

"""Kernels that mainly move bytes, and which of their bytes the memory has to deliver."""

from __future__ import annotations

import numpy as np

from tonnage.estimate.kernels.constants import Columns
from tonnage.estimate.kernels.rates import Rates
from tonnage.estimate.kernels.table import Floats, WorkTable
from tonnage.estimate.kernels.tiles import joined
from tonnage.estimate.kernels.work import KINDS

_ROWS_AT_ONCE = tuple(
    KINDS.index(kind) for kind in ("reduction", "normalisation", "normalisation_backward", "softmax", "sort")
)


def dram_bytes(table: WorkTable, rates: Rates, resident: float) -> Floats:
    """Bytes that really come from memory: what was just written, and what a small program touches, is still cached."""
    held = resident * rates.l2_bytes
    near = table.fresh_bytes + table.written_bytes
    old = table.read_bytes - table.fresh_bytes
    return near * _missed(near, held) + old * _missed(np.maximum(table.footprint, near + old), held)


def cold_share(table: WorkTable, rates: Rates, resident: float) -> Floats:
    """Of all bytes of a work, the share that comes from memory."""
    return np.asarray(dram_bytes(table, rates, resident) / np.maximum(table.bytes, 1.0))


def _missed(size: Floats, held: float) -> Floats:
    cube = (size / held) ** 3
    return np.asarray(cube / (1 + cube))


def stream_seconds(table: WorkTable, rates: Rates, constants: Columns, cold: Floats) -> Floats:
    """Bytes at the rate of the memory and of the cache; long rows of which there are few at the rate of single SMs."""
    memory = table.bytes * cold / (rates.stream * constants["bandwidth"])
    cached = table.bytes / (rates.l2_bandwidth * constants["cache"])
    whole = np.isin(table.kind, _ROWS_AT_ONCE)
    chain = whole * table.depth * np.ceil(table.rows / rates.sms) * constants["row_cycles"] / rates.clock
    return joined(joined(memory, cached, constants["overlap"]), chain, constants["overlap"])


def depthwise_seconds(table: WorkTable, rates: Rates, constants: Columns, cold: Floats) -> Floats:
    """Convolutions without a product in them: windows at a share of the plain units, or bytes."""
    compute = table.operations / (rates.operations[0] * np.minimum(constants["arithmetic"], 1.0))
    return joined(compute, stream_seconds(table, rates, constants, cold), constants["overlap"])

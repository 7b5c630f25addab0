"""Kernels that mainly move bytes, and which of their bytes the memory has to deliver."""

from __future__ import annotations

import numpy as np

from tonnage.estimate.kernels.constants import Columns
from tonnage.estimate.kernels.rates import Rates
from tonnage.estimate.kernels.table import Floats, WorkTable
from tonnage.estimate.kernels.tiles import joined
from tonnage.estimate.kernels.work import KINDS

# One SM, or a part of it, works on a row at a time; on reductions see `_reduction_steps`.
_BY_ROWS = np.array(["normalisation" in kind or kind in ("softmax", "sort", "gather", "scatter") for kind in KINDS])
_NORMALISED = np.array(["normalisation" in kind for kind in KINDS])
_SOFTMAX, _IN_REGISTERS = KINDS.index("softmax"), 1024  # values of a row that one warp keeps in its registers
_SOFTMAX_ROWS, _NORMALISED_ROWS = 6.0, 16.0  # in flight on an SM, by the size of PyTorch's blocks
_REDUCTION, _WINDOW, _LIST = KINDS.index("reduction"), KINDS.index("window"), KINDS.index("list")
_SCATTER = KINDS.index("scatter")
_ELEMENTWISE = np.array([kind in ("pointwise", "movement") for kind in KINDS])
_ROWS_AT_ONCE = 4  # blocks that an SM works on without slowing each other down


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
    moved = table.bytes + constants["again"] * table.read_bytes * _read_again(table, rates)
    memory = moved * cold / (rates.stream * constants["bandwidth"])
    cached = moved / (rates.l2_bandwidth * constants["cache"])
    chain = _chain_cycles(table, rates, constants) / rates.clock
    return joined(joined(memory, cached, constants["overlap"]), chain, constants["overlap"])


def _read_again(table: WorkTable, rates: Rates) -> Floats:
    """Rows are read once for their sum (or maximum) and again for the result: from memory where the rows in flight do not
    fit the caches. The softmax of short rows keeps them in registers."""
    in_flight = np.minimum(
        np.where(table.kind == _SOFTMAX, _SOFTMAX_ROWS, _NORMALISED_ROWS), np.maximum(table.rows / rates.sms, 1.0)
    )
    missed = _missed(in_flight * table.depth * table.itemsize, rates.l2_bytes / rates.sms + rates.l1_bytes)
    twice = _NORMALISED[table.kind] | ((table.kind == _SOFTMAX) & (table.depth > _IN_REGISTERS))
    return np.asarray(twice * missed)


def _chain_cycles(table: WorkTable, rates: Rates, constants: Columns) -> Floats:
    """Cycles of what cannot be done at once, however large the GPU is."""
    turns = np.maximum(table.rows / (_ROWS_AT_ONCE * rates.sms), 1.0)
    rows = turns * (constants["step_cycles"] + table.depth * constants["row_cycles"])
    uneven = 1 + constants["odd"] * (table.depth % 4 != 0)
    pieces = np.maximum(table.columns / (_ROWS_AT_ONCE * rates.sms), 1.0) * table.depth * constants["row_cycles"]
    kinds = [
        _ELEMENTWISE[table.kind],
        (table.kind == _SCATTER) & (table.groups > 1),
        _BY_ROWS[table.kind],
        *(table.kind == kind for kind in (_REDUCTION, _WINDOW, _LIST)),
    ]
    steps = constants["step_cycles"]
    indexed = (table.dims > 1) | (table.groups > 1)  # the place of each value is computed, or it is converted
    cycles = [
        table.rows / rates.sms * constants["row_cycles"] * indexed,
        table.groups * steps,
        rows * uneven,
        _reduction_steps(table) * steps,
        table.groups * steps,
        pieces * table.groups,
    ]
    return np.asarray(np.select(kinds, cycles, default=0.0))


def _reduction_steps(table: WorkTable) -> Floats:
    """How often a thread waits for memory: PyTorch gives a result 512 threads, or 512 over 32 results where the values of
    one lie apart, lets each load 4 values at once, and splits a result over blocks above 256 values per thread."""
    threads = np.where(table.strided, 512 / np.clip(table.rows, 1, 32), 512)
    steps = np.minimum(np.ceil(table.depth / threads), 256) / 4
    return np.asarray(np.where(table.groups > 1, table.groups, steps))


def depthwise_seconds(table: WorkTable, rates: Rates, constants: Columns, cold: Floats) -> Floats:
    """Convolutions without a product in them: windows at a share of the plain units, or bytes. The gradient of the data
    goes through whole windows, whatever the stride."""
    operations = 2.0 * table.rows * table.columns * table.depth * table.batch
    compute = operations / (rates.operations[0] * np.minimum(constants["arithmetic"], 1.0))
    return joined(compute, stream_seconds(table, rates, constants, cold), constants["overlap"])

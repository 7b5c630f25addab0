"""Attention, whose tiles are blocks of queries, and recurrent layers, whose steps wait for each other."""

from __future__ import annotations

import numpy as np

from tonnage.estimate.kernels.constants import Columns
from tonnage.estimate.kernels.rates import Rates
from tonnage.estimate.kernels.table import Floats, WorkTable
from tonnage.estimate.kernels.tiles import joined
from tonnage.estimate.kernels.work import KINDS

_BLOCK = 128  # queries (backward: keys) that one SM works on
_BACKWARD = KINDS.index("attention_backward")


def attention_seconds(table: WorkTable, rates: Rates, constants: Columns, cold: Floats) -> Floats:
    """Blocks in waves over the SMs; narrow heads leave tensor cores waiting for the softmax between two products."""
    length = np.where(table.kind == _BACKWARD, table.columns, table.rows)
    other = np.where(table.kind == _BACKWARD, table.rows, table.columns)
    blocks = np.ceil(length / _BLOCK) * table.batch
    waves = blocks / rates.sms
    load = np.where(waves <= 1, 1.0, waves + constants["tail"] * (np.ceil(waves) - waves))
    operations = table.operations / np.maximum(length * table.batch, 1.0) * _BLOCK
    started = 1 + constants["depth_overhead"] / np.maximum(other, 1.0)
    width = table.depth / (table.depth + constants["tile_overhead"])
    share = np.minimum(constants["arithmetic"] * width, 1.0)
    compute = load * operations * started * rates.sms / (rates.operations[table.arithmetic] * share)
    memory = table.bytes * cold / (rates.stream * constants["bandwidth"])
    return joined(compute, memory, constants["overlap"])


def recurrent_seconds(table: WorkTable, rates: Rates, constants: Columns, cold: Floats) -> Floats:
    """The arithmetic and the bytes of all steps, and for each step the time until the next may start."""
    steps = table.window * table.groups  # of all layers
    weights = table.itemsize * table.columns * table.depth  # read again in each step
    step = constants["step_cycles"] / rates.clock + weights / (rates.l2_bandwidth * constants["cache"])
    chain = steps * step
    filled = table.rows / (table.rows + constants["tile_overhead"])  # a small batch leaves most of a tile empty
    share = np.minimum(constants["arithmetic"] * filled, 1.0)
    compute = table.operations / (rates.operations[table.arithmetic] * share)
    memory = table.bytes * cold / (rates.stream * constants["bandwidth"])
    return np.asarray(chain + joined(compute, memory, constants["overlap"]))

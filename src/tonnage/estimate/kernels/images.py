"""Convolutions: as products that are never written out, or with Winograd's transformations, which need fewer products."""

from __future__ import annotations

import numpy as np

from tonnage.estimate.kernels.constants import Columns
from tonnage.estimate.kernels.rates import Rates
from tonnage.estimate.kernels.table import Floats, WorkTable
from tonnage.estimate.kernels.tiles import (
    Grid,
    arithmetic_seconds,
    candidates,
    chosen,
    joined,
    only_possible,
    split_seconds,
)
from tonnage.estimate.kernels.work import KINDS

_SMALL_TILE = (8, 16, 32)  # pixels down, pixels across and filters of one tile of the fused transformation
_LAUNCHES_LARGE = 3  # transform images, multiply, transform back


def convolution_seconds(table: WorkTable, rates: Rates, constants: Columns, cold: Floats, unit: str) -> Floats:
    """Seconds of the algorithm that the library chooses."""
    seconds = algorithm_seconds(table, rates, constants, cold, unit)
    return chosen(seconds, constants["choice"]) + _conversion(table, rates, constants, unit)


def algorithm_seconds(table: WorkTable, rates: Rates, constants: Columns, cold: Floats, unit: str) -> Floats:
    """Seconds of each algorithm: one column for each tile, then the two transformations where there are any."""
    tiles = candidates(rates.library, unit, "convolution")
    grid = Grid.of(table, rates, tiles)
    # A gradient of the data with strides has zeros in its window, which are not multiplied.
    depth = table.operations / (2.0 * table.rows * table.columns * table.batch)
    compute = arithmetic_seconds(table, rates, constants, grid, depth[:, None])
    memory = table.bytes * cold / (rates.stream * constants["bandwidth"])
    seconds = joined(compute, memory[:, None], constants["overlap"][:, None]) + split_seconds(constants, rates, tiles)
    seconds = only_possible(depth, tiles, seconds)
    if unit == "simt":
        transformed = [_fused(table, rates, constants, cold), _unfused(table, rates, constants, cold)]
        possible = has_transformation(table)
        seconds = np.concatenate([seconds, *(np.where(possible, t, np.inf)[:, None] for t in transformed)], axis=1)
    return np.asarray(seconds)


def has_transformation(table: WorkTable) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Windows of 3 x 3 at every pixel."""
    plain = (table.window == 9) & (table.stride == 1) & ~table.strided & (table.groups == 1)
    return np.asarray(plain & (table.side > 0))


def _conversion(table: WorkTable, rates: Rates, constants: Columns, unit: str) -> Floats:
    """Kernels for tensor cores want channels last, and whole groups of 16 bytes of them: other images are brought into
    that order and back."""
    if unit == "simt":
        return np.zeros(len(table))
    uneven, padded = _padding(table)
    passes = np.where(table.channels_last & ~uneven, 0.0, constants["conversion"])
    return np.asarray(passes * table.bytes * (1 + padded) / rates.stream)


def _padding(table: WorkTable) -> tuple[np.ndarray[tuple[int], np.dtype[np.bool_]], Floats]:
    """Are channels no multiple of 16 bytes, and how much larger are images whose channels are made so?"""
    whole = np.maximum(16 / table.itemsize, 1.0)
    weight = table.kind == KINDS.index("convolution_weight")
    channels = np.where(weight, table.columns, table.depth) / table.window
    other = np.where(weight, table.rows, table.columns)
    uneven = (channels % whole != 0) | (other % whole != 0)
    return uneven, np.minimum(np.ceil(channels / whole) * whole / channels, 4.0)


def _fused(table: WorkTable, rates: Rates, constants: Columns, cold: Floats) -> Floats:
    """F(2x2, 3x3) in one kernel: 16 products for 4 results instead of 36."""
    down, across, filters = _SMALL_TILE
    tiles = table.images * np.ceil(table.side / down) * np.ceil(table.side / across) * np.ceil(table.columns / filters)
    channels = table.depth / 9
    operations = 2.0 * down * across * filters * 4.0 * (channels + constants["depth_overhead"] / 8)
    compute = _waves(tiles, rates, constants) * operations * rates.sms / (_peak(table, rates) * constants["winograd"])
    weights = table.itemsize * channels * table.columns
    memory = (table.bytes + 7 * weights) * cold / rates.stream
    transform = 25 * weights / rates.stream + constants["launch_cycles"] / rates.clock
    return joined(compute, memory, constants["overlap"]) + transform


def _unfused(table: WorkTable, rates: Rates, constants: Columns, cold: Floats) -> Floats:
    """F(4x4, 3x3): 36 products of transformed images, which pass through memory; images are rounded up to 16."""
    squares = np.ceil(table.images / 16) * 16 * np.ceil(table.side / 4) ** 2
    channels = table.depth / 9
    best = np.full(len(table), np.inf)
    for rows, columns in ((128, 128), (128, 64), (64, 64), (32, 128)):
        tiles = np.ceil(squares / rows) * np.ceil(table.columns / columns) * 36
        reuse = rows * columns / (rows + columns)
        share = constants["winograd_large"] * reuse / (reuse + constants["tile_overhead"])
        operations = 2.0 * rows * columns * (np.ceil(channels / 8) * 8 + constants["depth_overhead"])
        load = _waves(tiles, rates, constants) * rates.sms
        best = np.minimum(best, load * operations / (_peak(table, rates) * np.minimum(share, 1.0)))
    through = table.itemsize * 36 * (squares * channels + channels * table.columns + squares * table.columns)
    passed = (table.bytes + through) / (0.75 * rates.stream)
    launches = _LAUNCHES_LARGE * constants["launch_cycles"] / rates.clock
    return np.asarray(joined(best, through * cold / rates.stream, constants["overlap"]) + passed + launches)


def _waves(tiles: Floats, rates: Rates, constants: Columns) -> Floats:
    waves = tiles / rates.sms
    return np.asarray(np.where(waves <= 1, 1.0, waves + constants["tail"] * (np.ceil(waves) - waves)))


def _peak(table: WorkTable, rates: Rates) -> Floats:
    return np.asarray(rates.operations[table.arithmetic])

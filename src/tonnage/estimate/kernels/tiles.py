"""Products cut into tiles: every tile keeps one SM busy, tiles run in waves, and libraries choose among a few tilings.

All functions have one row per work and one column per candidate; arrays of works are given with a second axis of 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from tonnage.estimate.kernels.constants import Columns
from tonnage.estimate.kernels.rates import Library, Rates
from tonnage.estimate.kernels.table import Floats, WorkTable
from tonnage.estimate.kernels.work import KINDS

SPLITS = (1, 2, 3, 5, 8, 16, 32)
LEAST_DEPTH = 64  # a product is not split into pieces less deep
# Rows and columns of tiles, and into how many slices the depth is cut inside one tile: the kernels that cuBLAS was seen
# to launch (Pascal; Volta and later; the batched ones of Pascal, Volta and Turing, Ampere).
_PLAIN_TILES = {
    Library.PASCAL: ((128, 32, 1), (64, 64, 1), (32, 128, 1)),
    Library.VOLTA: (
        (128, 128, 1), (64, 128, 1), (64, 64, 1), (32, 128, 1), (128, 32, 1), (32, 128, 4), (32, 64, 4), (32, 32, 4),
    ),
}  # fmt: skip
_BATCHED_TILES = {
    Library.PASCAL: ((64, 128, 1),),
    Library.VOLTA: ((64, 128, 1), (64, 64, 1), (32, 128, 1), (128, 32, 1)),
    Library.AMPERE: ((128, 128, 1),),
}
_TENSOR_TILES = (
    (128, 256, 1), (256, 128, 1), (128, 128, 1), (64, 256, 1), (256, 64, 1), (64, 128, 1), (128, 64, 1), (64, 64, 1),
    (32, 128, 1), (128, 32, 1), (32, 64, 1), (16, 128, 1),
)  # fmt: skip
_CONVOLUTION_TILES = ((128, 128, 1), (128, 64, 1), (128, 32, 1))
_PRODUCT, _WEIGHT = KINDS.index("product"), KINDS.index("convolution_weight")
_SCHEDULERS = 4  # of an SM: with fewer warps some have nothing to do
_MOST_WARPS = 16.0
_PERSISTENT_TAIL = 0.25  # Hopper's kernels stay on their SMs and share out what is left: so much of the tail remains
_WINDOW = 256.0  # depth that tiles which run at once read at about the same time


@dataclass(frozen=True, slots=True)
class Tiles:
    """Candidates: arrays that broadcast against (works, 1)."""

    rows: Floats
    columns: Floats
    slices: Floats
    split: Floats
    tensor: bool = False

    @property
    def reuse(self) -> Floats:
        """Operations for each value that is loaded."""
        return self.rows * self.columns / (self.rows + self.columns)

    @property
    def warps(self) -> Floats:
        """Warps that work on one tile."""
        least, each = (4.0, 4096.0) if self.tensor else (1.0, 2048.0)
        return np.maximum(least, self.rows * self.columns / each * self.slices)


@cache
def candidates(library: Library, unit: str, kind: str) -> Tiles:
    """What a library may choose from; `kind` is "plain", "batched" or "convolution"."""
    if unit != "simt":
        return _grid(_TENSOR_TILES, SPLITS, tensor=True)
    if kind == "convolution":
        return _grid(_CONVOLUTION_TILES, SPLITS)
    if kind == "batched" and library in _BATCHED_TILES:
        return _grid(_BATCHED_TILES[library], (1,))
    return _grid(_PLAIN_TILES[min(library, Library.VOLTA)], SPLITS)


def _grid(tiles: tuple[tuple[int, int, int], ...], splits: tuple[int, ...], *, tensor: bool = False) -> Tiles:
    values = np.array([(*tile, split) for tile in tiles for split in splits], dtype=np.float64).T
    rows, columns, slices, split = (column[None, :] for column in values)
    return Tiles(rows, columns, slices, split, tensor)


def joined(longer: Floats, other: Floats, overlap: Floats) -> Floats:
    """Two things that go on at once: the longer of them, and a little more where they are equally long."""
    high, low = np.maximum(longer, other), np.minimum(longer, other)
    return np.asarray(high + overlap * low * low / np.maximum(high, 1e-15))


@dataclass(frozen=True, slots=True)
class Grid:
    """Tiles of each work (rows, 1) under each candidate (1, columns)."""

    tiles: Tiles
    across: Floats
    down: Floats
    waves: Floats  # tiles per SM

    @classmethod
    def of(cls, table: WorkTable, rates: Rates, tiles: Tiles) -> Grid:
        across, down = np.ceil(_column(table.columns) / tiles.columns), np.ceil(_column(table.rows) / tiles.rows)
        return cls(tiles, across, down, across * down * _column(table.batch) * tiles.split / rates.sms)


def product_seconds(table: WorkTable, rates: Rates, constants: Columns, cold: Floats, tiles: Tiles) -> Floats:
    """Seconds of products under each candidate; `cold` is the share of their bytes that memory has to deliver."""
    grid = Grid.of(table, rates, tiles)
    compute = arithmetic_seconds(table, rates, constants, grid, _column(table.depth))
    memory = _memory_seconds(table, rates, constants, _column(cold), grid)
    return joined(compute, memory, _column(constants["overlap"])) + split_seconds(constants, rates, tiles)


def arithmetic_seconds(table: WorkTable, rates: Rates, constants: Columns, grid: Grid, depth: Floats) -> Floats:
    """The SM with most tiles, at the efficiency of its tile and of the warps that hide its latency."""
    tiles = grid.tiles
    persistent = _PERSISTENT_TAIL if tiles.tensor and rates.library is Library.HOPPER else 1.0
    lost = persistent * _column(constants["tail"]) * (np.ceil(grid.waves) - grid.waves)
    load = np.where(grid.waves <= 1, 1.0, grid.waves + lost)
    peak = _column(rates.operations[table.arithmetic])
    work = (
        2.0 * tiles.rows * tiles.columns * (np.ceil(depth / tiles.split / 8) * 8 + _column(constants["depth_overhead"]))
    )
    return np.asarray(load * work * rates.sms / (peak * efficiency(table, rates, constants, grid)))


def efficiency(table: WorkTable, rates: Rates, constants: Columns, grid: Grid) -> Floats:
    """Share of the peak rate while a tile is worked on: at most 1."""
    tiles = grid.tiles
    warps = np.minimum(np.maximum(grid.waves, 1.0) * tiles.warps, _MOST_WARPS)
    overhead = _column(constants["warp_overhead"])
    hidden = warps / (warps + overhead) * (_MOST_WARPS + overhead) / _MOST_WARPS
    loaded = tiles.reuse / (tiles.reuse + _column(constants["tile_overhead"]))
    share = _column(constants["arithmetic"]) * loaded * hidden * np.minimum(1.0, warps / _SCHEDULERS)
    if rates.library is Library.PASCAL:
        share = share / (1 + _column(_reads_along_depth(table)) * 8.0 / tiles.reuse)  # its load units want rows
    return np.asarray(np.minimum(share / (1 + _column(constants["odd"] * misalignment(table))), 1.0))


def misalignment(table: WorkTable) -> Floats:
    """How often the alignment of a row halves below the 16 bytes that the fastest loads need. Images count only in
    channels-last: others are padded when they are converted."""
    image = table.kind != _PRODUCT
    channels = np.where(table.kind == _WEIGHT, table.columns, table.depth) / table.window
    inner = np.where(image, channels, np.where(table.first_transposed, table.rows, table.depth))
    other = np.where(image, inner, np.where(table.second_transposed, table.depth, table.columns))
    results = np.where(table.kind == _WEIGHT, table.rows, table.columns)
    elements = np.maximum(16 / table.itemsize, 1.0)
    found = np.zeros(len(table))
    for power in (2, 4, 8):
        uneven = (inner % power != 0) | (other % power != 0) | (results % power != 0)
        found += uneven & (power <= elements)
    return np.asarray(np.where(image & ~table.channels_last, 0.0, found))


def _reads_along_depth(table: WorkTable) -> Floats:
    """Both operands lie with their depth as the fast dimension, as in the forward pass of a linear layer."""
    return np.asarray(table.second_transposed & ~table.first_transposed, dtype=np.float64)


def _memory_seconds(table: WorkTable, rates: Rates, constants: Columns, cold: Floats, grid: Grid) -> Floats:
    """Bytes once, panels again where the tiles in flight do not fit the cache, addresses of long rows."""
    tiles, size, depth, batch = grid.tiles, _column(table.itemsize), _column(table.depth), _column(table.batch)
    written = _column(table.written_bytes * constants["writes"]) * (2 * tiles.split - 1)
    once = _column(table.read_bytes) + written
    panels = size * grid.across * grid.down * batch * (tiles.rows + tiles.columns) * depth
    in_flight = _rows_in_flight(table, rates, grid)
    missed = _squared_share(in_flight * np.minimum(depth, _WINDOW) * size, rates.l2_bytes)
    # Kernels for tensor cores load whole lines whatever the order; the others fetch such rows in short pieces.
    along = _column(np.zeros(len(table)) if tiles.tensor else _reads_along_depth(table))
    older = 1.0 if rates.library is Library.PASCAL else 0.4
    pieces = 1 + along * older * _column(constants["pages"]) * np.log2(1 + depth * size / rates.page_bytes)
    dram = (once + np.maximum(panels - once, 0) * missed) * pieces * cold / rates.stream
    walked = along * panels * _squared_share(in_flight * depth * size, rates.addressed_bytes) / (0.4 * rates.stream)
    cached = panels / (_column(constants["cache"]) * rates.l2_bandwidth)
    return np.asarray(np.maximum(np.maximum(dram / _column(constants["bandwidth"]), walked), cached))


def _rows_in_flight(table: WorkTable, rates: Rates, grid: Grid) -> Floats:
    """Rows and columns of the operands that the tiles which run at once need together."""
    tiles = grid.tiles
    most = rates.sms * np.clip(np.floor(_MOST_WARPS / tiles.warps), 1, _MOST_WARPS)
    running = np.minimum(grid.waves * rates.sms, most)
    wide = np.minimum(grid.across, running)
    high = np.minimum(np.ceil(running / wide), grid.down)
    return np.asarray(
        np.minimum(_column(table.columns), wide * tiles.columns) + np.minimum(_column(table.rows), high * tiles.rows)
    )


def _squared_share(size: Floats, held: float) -> Floats:
    """How much of something that is needed again is no longer held; a half where it is as large as what can be."""
    square = (size / held) ** 2
    return np.asarray(square / (1 + square))


def split_seconds(constants: Columns, rates: Rates, tiles: Tiles) -> Floats:
    return np.asarray((tiles.split > 1) * _column(constants["split_cycles"]) / rates.clock)


def only_possible(depth: Floats, tiles: Tiles, seconds: Floats) -> Floats:
    """Infinite where a split would leave too little depth."""
    possible = (tiles.split == 1) | (_column(depth) >= LEAST_DEPTH * tiles.split)
    return np.asarray(np.where(possible, seconds, np.inf))


def chosen(seconds: Floats, uncertainty: Floats) -> Floats:
    """What the library's choice takes: fast candidates are likely, slow ones are not (mean logarithm under softmax)."""
    logarithm = np.log(seconds)
    best = logarithm.min(axis=1, keepdims=True)
    behind = np.minimum(logarithm - best, 60.0)
    weight = np.exp(-behind / _column(uncertainty))
    return np.asarray(np.exp(best[:, 0] + (weight * behind).sum(axis=1) / weight.sum(axis=1)))


def _column(values: Floats) -> Floats:
    return np.asarray(values[:, None])

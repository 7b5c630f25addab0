"""Seconds of works on a GPU: a bounded share of its rates, with tiles and waves, caches and launches.

Every constant is a share of something that the GPU's data sheet states, or a time in clock cycles, so that it means the
same on a GPU that was never measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tonnage.estimate.kernels.rates import Rates
from tonnage.estimate.kernels.table import Floats, WorkTable
from tonnage.estimate.kernels.work import KINDS

# Rows and columns of the tiles that libraries cut products into, largest first.
TILES = ((256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (64, 32), (32, 32))
SPLITS = (1, 2, 4, 8, 16, 32)
LEAST_DEPTH = 128  # a product is not split into pieces less deep
_TILED = tuple(KINDS.index(kind) for kind in ("product", "convolution", "convolution_data", "convolution_weight"))


@dataclass(frozen=True, slots=True, kw_only=True)
class KindConstants:
    """How well kernels of one kind use a GPU."""

    arithmetic: float = 0.7  # share of the peak rate
    bandwidth: float = 0.85  # share of the memory's bandwidth
    cache: float = 0.5  # share of the last-level cache's bandwidth
    launch_cycles: float = 2000.0  # from the start of a kernel to its end when there is nothing to do
    tile_overhead: float = 12.0  # rows and columns of a tile that would cost as much as loading its operands
    depth_overhead: float = 48.0  # depth that would cost as much as filling and emptying the pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """The constants of all kinds, and how much slower or faster single operators are than their kind."""

    kinds: Mapping[str, KindConstants] = field(default_factory=dict)
    names: Mapping[str, float] = field(default_factory=dict)  # logarithm of the factor
    resident: float = 0.6  # share of the last-level cache that a program can keep for itself

    def of(self, kind: str) -> KindConstants:
        return self.kinds.get(kind, _DEFAULT)


_DEFAULT = KindConstants()


def seconds(table: WorkTable, rates: Rates, constants: Constants) -> Floats:
    """Seconds of each work when it runs alone at the boost clock."""
    columns = {
        name: np.array([getattr(constants.of(kind), name) for kind in KINDS])[table.kind]
        for name in ("arithmetic", "bandwidth", "cache", "launch_cycles", "tile_overhead", "depth_overhead")
    }
    peak = rates.operations[table.arithmetic] * columns["arithmetic"]
    compute = np.where(np.isin(table.kind, _TILED), _tiled(table, rates, peak, columns), table.operations / peak)
    memory = dram_bytes(table, rates, constants) / (rates.bandwidth * columns["bandwidth"])
    cache = table.bytes / (rates.l2_bandwidth * columns["cache"])
    launch = columns["launch_cycles"] / rates.clock * table.launches
    effect = np.exp(np.array([constants.names.get(name, 0.0) for name in table.names]))
    return np.asarray(launch + _overlapped(compute, memory, cache) * effect)


def _overlapped(*parts: Floats) -> Floats:
    """The longest of several things that go on at once, and a little more where two are equally long."""
    return np.asarray(np.sum(np.power(parts, 3), axis=0) ** (1 / 3))


def dram_bytes(table: WorkTable, rates: Rates, constants: Constants) -> Floats:
    """Bytes that really come from memory: what was just written, and what a small program touches, is still cached."""
    held = constants.resident * rates.l2_bytes
    near = table.fresh_bytes + table.written_bytes
    old = table.read_bytes - table.fresh_bytes
    return near * _missed(near, held) + old * _missed(np.maximum(table.footprint, near + old), held)


def _missed(size: Floats, held: float) -> Floats:
    return np.asarray(1 / (1 + (held / np.maximum(size, 1.0)) ** 3))


def _tiled(table: WorkTable, rates: Rates, peak: Floats, columns: Mapping[str, Floats]) -> Floats:
    """The best of the tilings: whole tiles, whole waves of tiles over the SMs, and the depth cut to fill them."""
    best = np.full(len(table), np.inf)
    for rows, width in TILES:
        reuse = rows * width / (rows + width)
        efficiency = reuse / (reuse + columns["tile_overhead"])
        tiles = np.ceil(table.rows / rows) * np.ceil(table.columns / width) * table.batch
        for split in SPLITS:
            depth = table.depth / split
            waves = np.ceil(tiles * split / rates.sms)
            time = waves * rates.sms * 2.0 * rows * width * (depth + columns["depth_overhead"]) / (peak * efficiency)
            best = np.where((split == 1) | (depth >= LEAST_DEPTH), np.minimum(best, time), best)
    return best

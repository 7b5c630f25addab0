"""What the residual model may look at: sizes, shapes relative to tiles and SMs, layouts, and the roofline's own answer.

No feature names an operator by number: unseen operators have the features of their kind.
"""

from __future__ import annotations

import numpy as np

from tonnage.estimate.kernels.flows import cold_share
from tonnage.estimate.kernels.rates import Rates
from tonnage.estimate.kernels.table import Floats, WorkTable
from tonnage.estimate.kernels.work import KINDS

FEATURES = (
    "kind", "arithmetic", "itemsize", "roofline", "compute", "memory", "rows", "columns", "depth", "batch", "launches",
    "window", "groups", "stride", "first_transposed", "second_transposed", "channels_last", "strided", "rows_even",
    "columns_even", "depth_even", "fresh", "written", "footprint", "spread", "rows_filled", "columns_filled",
    "channels", "channels_even", "images", "side", "cold", "intensity", "dims",
)  # fmt: skip
_TILE = 128
_WEIGHT = KINDS.index("convolution_weight")
_LARGEST_FOOTPRINT = 1e10


def features(table: WorkTable, rates: Rates, roofline_seconds: Floats) -> Floats:
    """One row per work, one column per name in `FEATURES`."""
    columns = (
        table.kind,
        table.arithmetic,
        table.itemsize,
        np.log2(roofline_seconds),
        _log(table.operations / rates.operations[table.arithmetic] * 1e9),
        _log(table.bytes / rates.bandwidth * 1e9),
        _log(table.rows),
        _log(table.columns),
        _log(table.depth),
        _log(table.batch),
        _log(table.launches),
        _log(table.window),
        _log(table.groups),
        table.stride,
        table.first_transposed,
        table.second_transposed,
        table.channels_last,
        table.strided,
        _evenness(table.rows),
        _evenness(table.columns),
        _evenness(table.depth),
        _log(table.fresh_bytes),
        _log(table.written_bytes),
        _log(np.minimum(table.footprint, _LARGEST_FOOTPRINT)),
        _log(table.rows * table.columns * table.batch / rates.sms),
        _filled(table.rows),
        _filled(table.columns),
        _log(table.depth / table.window),
        _evenness(np.where(table.kind == _WEIGHT, table.columns, table.depth) / table.window),
        _log(table.images),
        table.side,
        cold_share(table, rates, 1.0),
        _log(table.operations / np.maximum(table.bytes, 1.0)),
        table.dims,
    )
    return np.stack([np.asarray(column, dtype=np.float64) for column in columns], axis=1)


def _log(values: Floats) -> Floats:
    return np.asarray(np.log2(np.maximum(values, 1.0)))


def _evenness(values: Floats) -> Floats:
    """How often a size can be halved, up to 7: libraries have faster kernels for sizes that are multiples of 8 or more."""
    whole = values.astype(np.int64)
    return np.asarray(sum((whole % (1 << power) == 0) for power in range(1, 8)), dtype=np.float64)


def _filled(values: Floats) -> Floats:
    """The share of whole tiles that a size fills."""
    return np.asarray(values / _TILE / np.ceil(values / _TILE))

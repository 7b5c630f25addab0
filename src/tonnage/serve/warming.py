"""Inputs to try a model with before clients do: what is slow the first time is over then."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from tonnage.serve.configuration import ModelConfiguration
from tonnage.serve.datatypes import BF16, BYTES, DTYPES
from tonnage.serve.runtimes import Arrays

_MOST_ELEMENTS = 1 << 26


def example_inputs(configuration: ModelConfiguration) -> Iterator[Arrays]:
    """One row, and as many as the largest batch has. Nothing where sizes are open that only a client knows."""
    for rows in sorted({1, max(configuration.max_batch_size, 1)}):
        example: Arrays = {}
        for spec in configuration.inputs:
            dims = spec.dims if spec.reshape is None else spec.reshape
            shape = (rows, *dims) if configuration.has_batches else dims
            if min(shape, default=1) < 0 or prod(shape) > _MOST_ELEMENTS:
                return
            example[spec.name] = _zeros(spec.datatype, shape)
        yield example


def _zeros(datatype: str, shape: tuple[int, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    if datatype == BYTES:
        return np.full(shape, b"", dtype=object)
    return np.zeros(shape, "<f4" if datatype == BF16 else DTYPES[datatype])

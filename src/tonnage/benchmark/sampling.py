"""Shares of the unit cube for choosing points: random, or as a Latin hypercube.

Only the raw bits of a generator are used: NumPy promises that they never change, which it does not for its distributions.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray


class Source:
    """Random shares that depend on the seed alone, on every machine and with every version."""

    def __init__(self, seed: Sequence[int]) -> None:
        self._bits = np.random.PCG64(np.random.SeedSequence(seed))

    def uniform(self, count: int) -> NDArray[np.float64]:
        """Numbers from 0 to below 1, with 53 random bits each."""
        raw: NDArray[np.uint64] = np.asarray(self._bits.random_raw(count), dtype=np.uint64)
        return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def permutation(self, count: int) -> NDArray[np.intp]:
        return np.argsort(self.uniform(count), kind="stable")

    def random(self, dimensions: int) -> Iterator[tuple[float, ...]]:
        """Points of the unit cube, without end."""
        while True:
            yield tuple(self.uniform(dimensions).tolist())

    def latin_hypercube(self, count: int, dimensions: int) -> Iterator[tuple[float, ...]]:
        """`count` points: cut any dimension into `count` equal strata, and one point lies in each."""
        columns = [(self.permutation(count) + self.uniform(count)) / count for _ in range(dimensions)]
        yield from zip(*(column.tolist() for column in columns), strict=True)

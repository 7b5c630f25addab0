"""Loads that no distribution can be below."""

from __future__ import annotations

import numpy as np

from tonnage.split.prices import Prices
from tonnage.split.problem import Problem


def load_bound(problem: Problem, prices: Prices, most_replicas: int = 1) -> float:
    """The larger of what all devices share at best and what the largest group needs by itself."""
    seconds = np.stack([each.seconds for each in problem.classes])
    counts = np.array([[min(each.count, most_replicas)] for each in problem.classes], dtype=np.float64)
    if len(problem.unshared):
        counts = np.where(problem.unshared > 0, 1.0, counts)
    largest = float((seconds / counts).min(axis=0).max())
    return max(prices.bound, largest)

"""What a second on each class of devices is worth: prices that give the simplest bound on loads, and the solvers' guard.

With a price y of each class, every group costs at least the least of y times its seconds, and all devices together offer
the sum of prices times the load that each may have. So no distribution has a largest load below
`sum(min(y * seconds)) / sum(y * count)`. The best prices are the dual solution of the fractional assignment.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tonnage.split.problem import Floats, Problem

_ROUNDS = 30


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """A price for each class, and what each group costs at least at these prices."""

    of_class: Floats
    of_group: Floats
    bound: float  # no largest load is below it


def best_prices(problem: Problem) -> Prices:
    """Prices with (nearly) the best bound, found by changing one after the other."""
    seconds = np.stack([each.seconds for each in problem.classes])
    counts = np.array([each.count for each in problem.classes], dtype=np.float64)
    prices = _typical(seconds)
    best = _bound(prices, seconds, counts)
    step = 2.0
    for _ in range(_ROUNDS):
        improved = False
        for index in range(len(prices)):
            for factor in (step, 1 / step):
                tried = prices.copy()
                tried[index] *= factor
                value = _bound(tried, seconds, counts)
                if value > best * (1 + 1e-12):
                    prices, best, improved = tried, value, True
        if not improved:
            step = 1 + (step - 1) / 2
    return Prices(prices, _least(prices, seconds), best)


def _typical(seconds: Floats) -> Floats:
    """The speed of each class by the work that all classes can do."""
    common = np.isfinite(seconds).all(axis=0)
    sums = seconds[:, common].sum(axis=1)
    return np.where(sums > 0, sums.max(initial=1.0) / np.where(sums > 0, sums, 1.0), 1.0)


def _least(prices: Floats, seconds: Floats) -> Floats:
    return np.asarray((prices[:, None] * seconds).min(axis=0))


def _bound(prices: Floats, seconds: Floats, counts: Floats) -> float:
    return float(_least(prices, seconds).sum() / (prices * counts).sum())

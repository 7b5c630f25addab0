"""Prices of seconds and bytes on each type of GPU, and the bound that they prove.

Without the limits of single GPUs the problem is a linear program: each type offers the seconds and bytes of all its GPUs
together. Its dual has two prices for each type, however many tasks there are; a cutting-plane method finds them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tonnage.allocate.speeds import Floats, Ints
from tonnage.errors import MissingDependency, TonnageError

_MOST_ROUNDS = 250
_STEP = 0.5  # from the best prices towards those of the master: going all the way would swing


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Offer:
    """What tasks cost and use on each type, as shares of what all its GPUs offer."""

    cost: Floats  # task, type; inf: impossible
    seconds: Floats  # task, type
    bytes: Floats  # task, type
    limited_seconds: bool  # at most all of them; otherwise the largest share is what is minimised

    @property
    def types(self) -> int:
        return int(self.seconds.shape[1])

    def at(self, prices: Floats) -> Answer:
        """Every task takes its cheapest type, at prices of each type's seconds and then of each type's bytes.

        The value bounds every assignment from below. One that keeps the limits uses at most what is offered, so what it
        pays for more than the offer is not positive; and no task pays less than at its cheapest type. Where the largest
        share S of seconds is minimised, prices of seconds add up to 1, and S is at least their weighted mean.
        """
        second, byte = prices[: self.types], prices[self.types :]
        cheapest = (self.cost + second * self.seconds + byte * self.bytes).argmin(axis=1)
        where = np.arange(len(cheapest)), cheapest
        used = [np.bincount(cheapest, each[where], self.types) for each in (self.seconds, self.bytes)]
        slope = np.concatenate([used[0] - self.limited_seconds, used[1] - 1.0])
        fixed = float(self.cost[where].sum())
        return Answer(prices=prices, fixed=fixed, slope=slope, value=fixed + float(slope @ prices), types=cheapest)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """The Lagrangian at some prices: value = fixed + slope x prices, a plane above the dual elsewhere."""

    prices: Floats
    fixed: float
    slope: Floats
    value: float
    types: Ints


def best_prices(offer: Offer, start: Floats, most: Floats, close: float, enough: float = np.inf) -> Answer:
    """Prices whose bound is within `close` (relative) of the best, or at least `enough`. No price exceeds `most`."""
    solve = _master(offer, most)
    best = offer.at(start)
    planes = [best]
    for _ in range(_MOST_ROUNDS):
        proposed, above = solve(planes)
        reached = best.value >= enough or (above < enough < np.inf)
        if reached or above - best.value <= close * abs(best.value):
            break
        answer = offer.at(best.prices + _STEP * (proposed - best.prices))
        planes.append(answer)
        best = max(best, answer, key=lambda each: each.value)
    return best


def _master(offer: Offer, most: Floats) -> Callable[[list[Answer]], tuple[Floats, float]]:
    """Maximises the lowest of all planes: the next prices to try, and what no prices can exceed."""
    try:
        from scipy.optimize import linprog
    except ModuleNotFoundError:
        raise MissingDependency("allocation needs the package scipy", "pip install 'tonnage[allocate]'") from None
    size = len(most)
    objective = np.append(np.zeros(size), -1.0)
    limits = [(0.0, each) for each in most] + [(None, None)]
    adds_up = None if offer.limited_seconds else np.append(np.arange(size) < offer.types, False)[None].astype(float)

    def solve(planes: list[Answer]) -> tuple[Floats, float]:
        slopes = np.array([each.slope for each in planes])
        answer = linprog(
            objective,
            A_ub=np.column_stack([-slopes, np.ones(len(planes))]),
            b_ub=[each.fixed for each in planes],
            A_eq=adds_up,
            b_eq=None if adds_up is None else [1.0],
            bounds=limits,
            method="highs",
        )
        if answer.x is None:
            raise TonnageError(f"the linear program of prices was not solved: {answer.message}")
        return answer.x[:-1], -float(answer.fun)

    return solve

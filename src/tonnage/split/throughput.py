"""The contiguous distribution with the least largest load, with a bound.

A first one comes from chains along good orders. Then, where all sets can be listed, the best chain is found and proven:
the cap on loads rises from the bound, so that most failing searches are cheap. Where they cannot, coarser versions of the
problem and windows around their boundaries make good ones, and the bound stays what was proven.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf

import numpy as np

from tonnage.split.bounds import load_bound
from tonnage.split.chains import Chain, InFlight, OutOfTime, best_chain
from tonnage.split.coarsen import coarsen
from tonnage.split.cut_bound import cut_bound
from tonnage.split.family import Family
from tonnage.split.lattice import all_sets, prefixes
from tonnage.split.orders import good_orders, order_through
from tonnage.split.prices import Prices, best_prices
from tonnage.split.problem import Problem, nowhere
from tonnage.split.rough import listed_roughly
from tonnage.split.windows import Windows

_MOST_ENTRIES = 12_000_000  # sets times states
_MOST_SETS = 700_000
_ORDERS = 8
_WINDOW_SETS = 6_000
_ROUGH_SETS = 40_000
_SHARES = (0.125, 0.5, 1.0)  # of the way from the bound to the first value, where exact searches are capped
_FACTORS = (1.02, 1.1, 1.4, 3.0, inf)  # of the bound, where other searches are capped
_NEARLY = 1 + 1e-9

KeepGoing = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Answer:
    """A chain over the groups of `problem` (which may be fewer than those asked about), and a bound on its value."""

    problem: Problem
    chain: Chain
    bound: float

    @property
    def is_proven(self) -> bool:
        return self.chain.value <= self.bound * _NEARLY


def split_for_throughput(
    problem: Problem,
    *,
    keep_going: KeepGoing = lambda: True,
    most_replicas: int = 1,
    in_flight: InFlight = lambda used: 1,
    start: Sequence[Collection[int]] = (),
    good_enough: float = 0.0,
) -> Answer | None:
    """The best contiguous distribution found; None if there is none. `start` are the stages of an earlier answer, as
    positions of operations, which are tried first. The search ends early when the gap is no more than `good_enough`."""
    if not problem.classes or nowhere(problem).any():
        return None
    return _Search(problem, keep_going, most_replicas, in_flight, good_enough).run(start)


class _Search:
    def __init__(
        self,
        problem: Problem,
        keep_going: KeepGoing,
        most_replicas: int,
        in_flight: InFlight,
        good_enough: float,
    ) -> None:
        self._keep_going = keep_going
        self._most_replicas = most_replicas
        self._in_flight = in_flight
        self._good_enough = good_enough
        self._generator = np.random.default_rng(0)
        self._use(coarsen(problem))
        self.best: Chain | None = None
        self.bound = load_bound(self.problem, self.prices, most_replicas)

    def _use(self, problem: Problem) -> None:
        self.problem: Problem = problem
        self.prices: Prices = best_prices(problem)

    def run(self, start: Sequence[Collection[int]]) -> Answer | None:
        with suppress(OutOfTime):
            self._look(start)
        return self._answer()

    def _look(self, start: Sequence[Collection[int]]) -> None:
        if start:
            self._along_start(start)
        self._along_orders()
        if self._is_done():
            return
        sets = all_sets(self.problem, self._most_sets(), self._patience)
        if sets is not None:
            self._exactly(sets)
        else:
            self._roughly()

    def _answer(self) -> Answer | None:
        return None if self.best is None else Answer(self.problem, self.best, min(self.bound, self.best.value))

    def _is_done(self) -> bool:
        if self.best is None:
            return False
        return self.best.value <= self.bound * (1 + self._good_enough) * _NEARLY or not self._keep_going()

    def _patience(self) -> bool:
        """The first answer is waited for."""
        return self.best is None or self._keep_going()

    def _most_sets(self) -> int:
        states = int(np.prod([each.count + 1 for each in self.problem.classes]))
        return min(_MOST_ENTRIES // states, _MOST_SETS)

    def _try(self, sets: Iterable[int]) -> None:
        """Look for something better among these sets; caps near the bound make a search much cheaper."""
        family = Family(self.problem, list(sets), self.prices.of_group)
        for factor in _FACTORS:
            cap = min(self.bound * factor, self._cap)
            if self._search(family, cap) is not None or cap >= self._cap:
                return

    def _search(self, family: Family, cap: float) -> Chain | None:
        found = best_chain(
            family, self.prices, cap=cap, most_replicas=self._most_replicas, in_flight=self._in_flight,
            keep_going=self._patience,
        )  # fmt: skip
        if found is not None and (self.best is None or found.value < self.best.value):
            self.best = found
        return found

    @property
    def _cap(self) -> float:
        return inf if self.best is None else self.best.value

    def _along_start(self, stages: Sequence[Collection[int]]) -> None:
        """The stages of an earlier answer, which other costs may have made unequal: cuts move along an order through
        them. Groups of operations that were apart count to the later stage."""
        where = {position: number for number, stage in enumerate(stages) for position in stage}
        stage_of = [0] * self.problem.size
        for group, members in enumerate(self.problem.members):  # in a topological order
            latest = max((stage_of[leader] for leader in self.problem.leaders[group]), default=0)
            stage_of[group] = max([latest, *(where.get(position, 0) for position in members)])
        self._try(prefixes(order_through(self.problem, stage_of)))

    def _along_orders(self) -> None:
        """Chains along each order, then across all of them."""
        seen: set[int] = set()
        for order in good_orders(self.problem, self._generator, _ORDERS):
            if self._is_done():
                return
            sets = set(prefixes(order))
            if not sets <= seen:
                self._try(sets)
            seen |= sets
        if self._is_done():
            return
        self._try(seen)

    def _exactly(self, sets: list[int]) -> None:
        family = Family(self.problem, sets, self.prices.of_group)
        low, high = self.bound, self._cap
        for share in _SHARES if high < inf else (1.0,):
            cap = low + share * (high - low) if high < inf else inf
            found = self._search(family, cap)
            if found is not None:
                self.bound = max(self.bound, found.value)
                return
            self.bound = max(self.bound, min(cap, high))
            if self._is_done():
                return

    def _roughly(self) -> None:
        self._near_boundaries()
        self._raise_bound()
        if not self._is_done():
            self._try(listed_roughly(self.problem, _ROUGH_SETS))
            self._near_boundaries()

    def _raise_bound(self) -> None:
        if self.best is not None and self._most_replicas == 1 and not self._is_done():
            self.bound = cut_bound(self.problem, self.prices, self.bound, self.best.value, self._keep_going)

    def _near_boundaries(self) -> None:
        windows = Windows(self.problem, self._generator)
        fruitless = 0
        while self.best is not None and fruitless < 2 and not self._is_done():
            before = self.best.value
            self._try(windows.around(self.best, _WINDOW_SETS))
            fruitless = 0 if self.best.value < before * (1 - 1e-6) else fruitless + 1

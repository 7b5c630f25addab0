"""An instance without what cannot matter: types without GPUs, and tasks that fit nowhere."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tonnage.allocate.assign.problem import Assigned, Instance, Prices
from tonnage.allocate.speeds import Floats, Ints
from tonnage.errors import TonnageError

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reduced:
    """The instance that solvers see, and the way back to the one that was asked about."""

    whole: Instance
    instance: Instance
    tasks: Ints  # of the whole
    types: Ints  # of the whole

    def prices(self, prices: Prices) -> Prices:
        return Prices(second=prices.second[self.types], byte=prices.byte[self.types])

    def expanded(
        self,
        gpus: Ints,
        order: Floats,
        *,
        value: float,
        bound: float,
        prices: Prices | None = None,
        type_prices: Floats | None = None,
    ) -> Assigned:
        """From GPUs that are numbered through, -1 for nowhere; tasks of a GPU run by growing `order`."""
        types, within = np.full((2, self.whole.size), -1)
        placed = gpus >= 0
        tasks, gpus = self.tasks[placed], gpus[placed]
        first = np.concatenate([[0], np.cumsum(self.instance.counts)])
        number = np.searchsorted(first, gpus, side="right") - 1
        types[tasks], within[tasks] = self.types[number], gpus - first[number]
        positions = np.full(self.whole.size, -1)
        positions[tasks] = _ranks(gpus, order[placed])
        none = np.zeros(len(self.types))
        prices = prices or Prices(second=none, byte=none)
        each = prices.second * bound + prices.byte * self.instance.capacity_bytes
        return Assigned(
            types=types,
            gpus=within,
            positions=positions,
            value=value,
            bound=_believable(bound, value),
            prices=Prices(second=self._wide(prices.second), byte=self._wide(prices.byte)),
            type_prices=self._wide(each if type_prices is None else type_prices),
            unplaced=np.flatnonzero(types < 0),
        )

    def nothing(self) -> Assigned:
        return self.expanded(np.full(len(self.tasks), -1), np.zeros(len(self.tasks)), value=0.0, bound=0.0)

    def _wide(self, values: Floats) -> Floats:
        wide = np.zeros(len(self.whole.counts))
        wide[self.types] = values
        return wide


def reduced(instance: Instance) -> Reduced:
    types = np.flatnonzero(instance.counts > 0)
    tasks = np.flatnonzero(instance.possible.any(axis=1))
    smaller = replace(
        instance.of_tasks(tasks),
        seconds=instance.seconds[np.ix_(tasks, types)],
        memory_bytes=instance.memory_bytes[np.ix_(tasks, types)],
        counts=instance.counts[types],
        capacity_bytes=instance.capacity_bytes[types],
    )
    return Reduced(whole=instance, instance=smaller, tasks=tasks, types=types)


def _believable(bound: float, value: float) -> float:
    """A bound may exceed the value by an error of rounding; by more, one of them is wrong."""
    if bound > value * (1.0 + _ROUNDING):
        raise TonnageError(
            f"the bound {bound} is larger than the value {value}", "this is a fault of Tonnage: report it"
        )
    return min(bound, value)


def _ranks(groups: Ints, order: Floats) -> Ints:
    """Of each in its group, by order."""
    sequence = np.lexsort((order, groups))
    ranks = np.empty(len(groups), dtype=np.int64)
    ranks[sequence] = np.arange(len(groups)) - np.searchsorted(groups[sequence], groups[sequence])
    return ranks

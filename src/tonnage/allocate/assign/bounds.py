"""What no assignment can beat: the least makespan of the relaxed problem, with the prices that prove it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tonnage.allocate.assign.prices import Answer, Offer, best_prices
from tonnage.allocate.assign.problem import Instance, Prices
from tonnage.allocate.speeds import Floats, Ints

_CLOSE = 1e-4
_CLOSER = 1e-5  # where types are chosen
_MOST_BYTE_PRICE = 50.0  # of all bytes of a type, in makespans
_HALVINGS = 12
_BYTES_KEPT = 0.02  # of each type's memory, where types are chosen


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Relaxed:
    """A bound, the prices behind it, and a type for each task."""

    bound: float
    ceiling: float  # no task longer than this was allowed on any type
    prices: Prices
    tight: Prices  # with some memory kept free, since whole tasks never fill it
    types: Ints  # the cheapest of each task at the tight prices


def relaxed_makespan(instance: Instance, start: Prices | None = None) -> Relaxed:
    """The bound of the linear program in which no task may take longer than the makespan itself.

    With tasks longer than T forbidden, let D(T) be the dual's value. Every assignment takes at least min(T, D(T)): either
    longer than T, or it uses nothing that was forbidden. D falls and T rises, so the best T lies where they meet.
    """
    program = _Program(instance)
    answer = program.solve(np.inf, program.scaled(start), _CLOSE)
    low = max(longest_task(instance), crowding(instance), answer.value * program.scale)
    answer = program.solve(low, answer.prices, _CLOSE)
    high = max(low, answer.value * program.scale)
    for _ in range(_HALVINGS):
        if high <= low * (1 + _CLOSE):
            break
        middle = (low + high) / 2
        answer = program.solve(middle, answer.prices, _CLOSE, enough=middle / program.scale)
        proven = min(middle, answer.value * program.scale)
        low, high = max(low, proven), (high if proven == middle else middle)
    tight = program.solve(high, answer.prices, _CLOSER, bytes_kept=_BYTES_KEPT)
    return Relaxed(
        bound=low, ceiling=high, prices=program.unscaled(answer), tight=program.unscaled(tight), types=tight.types
    )


def proven_makespan(instance: Instance, prices: Prices, ceiling: float) -> float:
    """What given prices prove at once, without a search for better ones."""
    program = _Program(instance)
    floor = max(longest_task(instance), crowding(instance))
    if ceiling <= floor:
        return floor
    return max(floor, min(ceiling, program.offer(ceiling).at(program.scaled(prices)).value * program.scale))


def longest_task(instance: Instance) -> float:
    """A task takes as long as on the GPU that suits it best."""
    return float(_least_seconds(instance).max(initial=0.0))


def crowding(instance: Instance) -> float:
    """Of c GPUs + 1 tasks, c + 1 share a GPU: at least as long as the c + 1 shortest of these."""
    seconds = -np.sort(-_least_seconds(instance))
    gpus = int(instance.counts.sum())
    fullest = range(1, (len(seconds) - 1) // gpus + 1)
    return max((float(seconds[c * gpus - c : c * gpus + 1].sum()) for c in fullest), default=0.0)


def _least_seconds(instance: Instance) -> Floats:
    return np.asarray(np.where(instance.possible, instance.seconds, np.inf).min(axis=1))


class _Program:
    """The linear program of an instance. Seconds are measured in `scale`, so that all numbers are of like size."""

    def __init__(self, instance: Instance) -> None:
        self.instance, self.possible = instance, instance.possible
        types = len(instance.counts)
        self.seconds = np.where(self.possible, instance.seconds, 0.0) / instance.counts
        bytes_share = instance.memory_bytes / (instance.counts * np.maximum(instance.capacity_bytes, 1))
        self.bytes = bytes_share if instance.resident else np.zeros(self.seconds.shape)
        self.scale = float(np.where(self.possible, self.seconds, np.inf).min(axis=1).sum()) / types or 1.0
        byte_price = _MOST_BYTE_PRICE if instance.resident else 0.0
        self.most = np.concatenate([np.ones(types), np.full(types, byte_price)])

    def offer(self, ceiling: float, bytes_kept: float = 0.0) -> Offer:
        allowed = self.possible & (self.instance.seconds <= ceiling)
        return Offer(
            cost=np.where(allowed, 0.0, np.inf),
            seconds=self.seconds / self.scale,
            bytes=self.bytes / (1.0 - bytes_kept),
            limited_seconds=False,
        )

    def solve(
        self, ceiling: float, start: Floats, close: float, enough: float = np.inf, bytes_kept: float = 0.0
    ) -> Answer:
        return best_prices(self.offer(ceiling, bytes_kept), start, self.most, close, enough)

    def scaled(self, prices: Prices | None) -> Floats:
        """Prices of all that a type offers; those of seconds add up to 1."""
        counts = self.instance.counts
        if prices is None:
            return np.concatenate([counts / counts.sum(), np.zeros(len(counts))])
        total = float(prices.second @ counts)
        byte = prices.byte * counts * self.instance.capacity_bytes / self.scale
        return np.concatenate([prices.second * counts, np.minimum(byte, self.most[len(counts) :])]) / (total or 1.0)

    def unscaled(self, answer: Answer) -> Prices:
        counts = self.instance.counts
        second, byte = np.split(answer.prices, 2)
        offered = np.maximum(counts * self.instance.capacity_bytes, 1)
        return Prices(second=second / counts, byte=byte * self.scale / offered)

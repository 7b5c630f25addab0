"""For long queues: a price for each type of GPU, whole placements in the order of what remains, then pairs.

A linear program over thousands of tasks takes too long. With prices each task sees for itself where it gains most, and they
are such that what all want is there.
"""

from __future__ import annotations

import numpy as np

from tonnage.allocate.linear import Shares
from tonnage.allocate.pairing import Group, join
from tonnage.allocate.queue import Columns, Queue
from tonnage.allocate.speeds import Floats, Ints

_MOST_SWEEPS = 20
_CLOSE = 1e-3  # relative change of prices
_GUESTS = 3  # for each that runs, so many of those that wait are looked at


def most_valuable_whole(queue: Queue, value: Floats) -> Shares:
    """Who runs for a whole period, about as valuable as `most_valuable`; GPUs that are of use to somebody do not idle."""
    worth = queue.speeds * value[:, None]
    prices = market_prices(worth, queue.gpus, queue.capacity)
    plan = _Plan(queue, value, worth, prices)
    plan.place()
    if queue.table.paired.any():
        plan.join()
        plan.place()
    plan.move()
    plan.place()
    columns = plan.columns()
    return Shares(
        columns=columns,
        shares=np.ones(columns.size),
        value=float(columns.worth(value).sum()),
        type_prices=prices,
        task_prices=np.maximum(plan.surplus.max(axis=1), 0.0),
    )


def market_prices(worth: Floats, gpus: Ints, capacity: Ints) -> Floats:
    """Of a GPU of each type: the least at which no more are wanted than there are.

    One type after the other: the price is what the first task would pay that finds no room, given what it could have
    elsewhere; until nothing changes. From nothing upwards, so that they end at the least.
    """
    prices = np.zeros(len(capacity))
    for _ in range(_MOST_SWEEPS):
        before = prices.copy()
        for kind, count in enumerate(capacity):
            surplus = worth - prices * gpus[:, None]
            surplus[:, kind] = 0.0  # what it has if it stays away from here
            offers = (worth[:, kind] - surplus.max(axis=1).clip(0.0)) / gpus
            prices[kind] = _first_without_room(offers, gpus, int(count))
        if np.abs(prices - before).max() <= _CLOSE * prices.max():
            break
    return prices


def _first_without_room(offers: Floats, gpus: Ints, count: int) -> float:
    order = np.argsort(-offers, kind="stable")
    taken = np.cumsum(gpus[order])
    first = int(np.searchsorted(taken, count, side="right"))
    return max(float(offers[order[first]]), 0.0) if first < len(order) else 0.0


class _Plan:
    """Whole placements in the making."""

    def __init__(self, queue: Queue, value: Floats, worth: Floats, prices: Floats) -> None:
        self.queue, self.value, self.worth = queue, value, worth
        self.gpus, self.free = queue.gpus, queue.capacity.copy()
        self.surplus = np.where(worth > 0, worth - prices * self.gpus[:, None], -np.inf)
        self.types = np.full(queue.size, -1)
        self.partners = np.full(queue.size, -1)

    def place(self) -> None:
        """Who waits takes free GPUs: first who gains most from a GPU, each where it gains most."""
        waiting = np.flatnonzero(self.types < 0)
        order = waiting[np.argsort(-self.surplus[waiting].max(axis=1) / self.gpus[waiting], kind="stable")]
        preferred = np.argsort(-self.surplus[order], axis=1, kind="stable").tolist()
        free = self.free.tolist()
        for task, gpus, kinds in zip(order.tolist(), self.gpus[order].tolist(), preferred, strict=True):
            kind = next((kind for kind in kinds if gpus <= free[kind] and self.worth[task, kind] > 0), None)
            if kind is not None:
                self.types[task] = kind
                free[kind] -= gpus
                if not any(free):
                    break
        self.free = np.array(free, dtype=np.int64)

    def move(self) -> None:
        """GPUs that are left go to tasks that gain by moving there; theirs become free in turn."""
        for _ in range(int(self.queue.capacity.sum())):
            tasks = np.flatnonzero((self.types >= 0) & (self.partners < 0))
            room = self.gpus[tasks, None] <= self.free
            gains = np.where(room, self.worth[tasks] - self.worth[tasks, self.types[tasks]][:, None], 0.0)
            if not len(tasks) or gains.max() <= 0.0:
                return
            number, kind = np.unravel_index(gains.argmax(), gains.shape)
            task = tasks[number]
            self.free[self.types[task]] += self.gpus[task]
            self.free[kind] -= self.gpus[task]
            self.types[task] = kind

    def join(self) -> None:
        """Tasks go to others that run alone, where both together are worth more."""
        for kind in range(len(self.free)):
            for gpus in np.unique(self.gpus[self.types == kind]):
                self._join_on(kind, int(gpus))

    def _join_on(self, kind: int, gpus: int) -> None:
        alone = (self.gpus == gpus) & (self.partners < 0)
        hosts = np.flatnonzero(alone & (self.types == kind))
        guests = self._guests(np.flatnonzero(alone & (self.worth[:, kind] > 0)), kind, len(hosts))
        table = self.queue.table
        pairs = join(self._group(guests, kind), self._group(hosts, kind), table.alone[:, kind], table.paired[kind])
        for guest, host in pairs:
            self._pair(guest, host, kind)

    def _guests(self, tasks: Ints, kind: int, hosts: int) -> Ints:
        """All that run, and of those that wait the most valuable."""
        waiting = tasks[self.types[tasks] < 0]
        if len(waiting) > _GUESTS * hosts:
            waiting = waiting[np.argsort(-self.worth[waiting, kind], kind="stable")[: _GUESTS * hosts]]
        return np.concatenate([waiting, tasks[self.types[tasks] >= 0]])

    def _group(self, tasks: Ints, kind: int) -> Group:
        """Who leaves GPUs gives up what it gained there, but not their price."""
        runs = self.types[tasks] >= 0
        return Group(
            tasks=tasks,
            classes=self.queue.classes[tasks],
            rates=self.value[tasks] * self.queue.efficiency[tasks, kind],
            given_up=np.where(runs, self.surplus[tasks, self.types[tasks]].clip(0.0), 0.0),
            partners=self.queue.partners[tasks],
        )

    def _pair(self, guest: int, host: int, kind: int) -> None:
        if self.types[guest] >= 0:
            self.free[self.types[guest]] += self.gpus[guest]
        self.types[guest] = kind
        self.partners[guest], self.partners[host] = host, guest

    def columns(self) -> Columns:
        tasks = np.arange(len(self.types))
        firsts = tasks[(self.types >= 0) & ((self.partners < 0) | (tasks < self.partners))]
        seconds, types = self.partners[firsts], self.types[firsts]
        both, classes, efficiency = seconds >= 0, self.queue.classes, self.queue.efficiency
        paired = self.queue.table.paired
        first_paired = paired[types, classes[firsts], classes[seconds]] * efficiency[firsts, types]
        second_paired = paired[types, classes[seconds], classes[firsts]] * efficiency[seconds, types]
        return Columns(
            types=types,
            firsts=firsts,
            seconds=seconds,
            first_speeds=np.where(both, first_paired, self.queue.speeds[firsts, types]),
            second_speeds=np.where(both, second_paired, 0.0),
            gpus=self.gpus[firsts],
        )

"""The tasks that wait or run at one moment, as arrays: what the linear programs see."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tonnage.allocate.speeds import Bools, Floats, Ints, SpeedTable

_LEAST_PROFIT = 1e-9
_YOUNG_SECONDS = 600.0  # slowdowns of tasks that have only arrived say nothing
_SLOWEST = 10.0


@dataclass(frozen=True, kw_only=True, eq=False)  # without slots: what follows from its fields is kept
class Queue:
    table: SpeedTable
    capacity: Ints  # GPUs of each type
    classes: Ints  # of each task
    left_steps: Floats  # as far as is known
    made_steps: Floats
    weights: Floats  # how much each counts
    age_seconds: Floats  # since each arrived
    crowding: float  # the part of the GPUs wanted, by these and by others, that is not there
    places: Ints  # the type of GPU that each runs on; -1: it waits
    partners: Ints  # the task that each shares its GPUs with; -1: none
    efficiency: Floats  # task, type: what is left of a period after moving there

    @property
    def size(self) -> int:
        return len(self.classes)

    def chosen(self, which: Ints) -> Queue:
        """Some of the tasks."""
        return replace(
            self, classes=self.classes[which], left_steps=self.left_steps[which], made_steps=self.made_steps[which],
            weights=self.weights[which], age_seconds=self.age_seconds[which], places=self.places[which],
            partners=numbers_among(self.partners[which], which), efficiency=self.efficiency[which],
        )  # fmt: skip

    @cached_property
    def gpus(self) -> Ints:
        return self.table.gpus[self.classes]

    @cached_property
    def speeds(self) -> Floats:
        """Task, type."""
        return np.asarray(self.table.alone[self.classes] * self.efficiency)

    @cached_property
    def best_speeds(self) -> Floats:
        return np.asarray(self.speeds.max(axis=1))

    @cached_property
    def least_seconds(self) -> Floats:
        """Until each would end if it had the GPUs that suit it to itself."""
        return np.asarray(self.left_steps / self.best_speeds)

    @cached_property
    def slowdowns(self) -> Floats:
        """How much longer each has taken so far than on the GPUs that suit it."""
        needed = self.made_steps / self.best_speeds
        return np.asarray(np.clip((self.age_seconds + _YOUNG_SECONDS) / (needed + _YOUNG_SECONDS), 1.0, _SLOWEST))


def new_queue(table: SpeedTable, capacity: Ints, classes: Ints, steps: Floats) -> Queue:
    """Tasks of which none has begun, all alike but for their classes and steps."""
    count = len(classes)
    return Queue(
        table=table, capacity=capacity, classes=classes, left_steps=steps, made_steps=np.zeros(count),
        weights=np.ones(count), age_seconds=np.zeros(count), crowding=0.0, places=np.full(count, -1),
        partners=np.full(count, -1), efficiency=np.ones((count, len(capacity))),
    )  # fmt: skip


def numbers_among(tasks: Ints, some: Ints) -> Ints:
    """Where each of these is among some, which are sorted; -1: nowhere."""
    place = np.searchsorted(some, tasks).clip(max=max(len(some) - 1, 0))
    return np.where(some[place] == tasks, place, -1) if len(some) else np.full(len(tasks), -1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Columns:
    """Ways to run a task, or two together, on one type of GPU."""

    types: Ints
    firsts: Ints
    seconds: Ints  # -1: alone
    first_speeds: Floats
    second_speeds: Floats
    gpus: Ints

    @property
    def size(self) -> int:
        return len(self.types)

    def worth(self, value: Floats) -> Floats:
        """Of each column, by what a step of each task is worth."""
        worth = self.first_speeds * value[self.firsts]
        second = self.seconds >= 0
        worth[second] += self.second_speeds[second] * value[self.seconds[second]]
        return worth

    def done(self, shares: Floats, tasks: int, types: int) -> Floats:
        """Task, type: steps a second, if each column runs for its share."""
        done = np.zeros((tasks, types))
        np.add.at(done, (self.firsts, self.types), shares * self.first_speeds)
        second = self.seconds >= 0
        np.add.at(done, (self.seconds[second], self.types[second]), (shares * self.second_speeds)[second])
        return done

    def of_tasks(self, which: Ints) -> Columns:
        """The same columns, where task n is called `which[n]`."""
        seconds = np.where(self.seconds >= 0, which[self.seconds], -1)
        return replace(self, firsts=which[self.firsts], seconds=seconds)

    def by_task(self, amounts: Floats, tasks: int) -> Floats:
        """Amounts of columns, added up for each task that is in them."""
        second = self.seconds >= 0
        total = np.bincount(self.firsts, amounts, tasks)
        return np.asarray(total + np.bincount(self.seconds[second], amounts[second], tasks), dtype=float)

    def joined(self, other: Columns) -> Columns:
        return Columns(
            types=np.concatenate([self.types, other.types]),
            firsts=np.concatenate([self.firsts, other.firsts]),
            seconds=np.concatenate([self.seconds, other.seconds]),
            first_speeds=np.concatenate([self.first_speeds, other.first_speeds]),
            second_speeds=np.concatenate([self.second_speeds, other.second_speeds]),
            gpus=np.concatenate([self.gpus, other.gpus]),
        )

    def without(self, ended: Bools) -> Columns:
        """Who shared with a task that has ended goes on alone. Speeds stay as they were."""
        second_ended = (self.seconds >= 0) & ended[self.seconds]
        first_ended = ended[self.firsts]
        firsts = np.where(first_ended, self.seconds, self.firsts)
        seconds = np.where(first_ended | second_ended, -1, self.seconds)
        left = np.flatnonzero(~first_ended | ((self.seconds >= 0) & ~second_ended))
        return replace(self, firsts=firsts, seconds=seconds).chosen(left)

    def chosen(self, which: Ints) -> Columns:
        return Columns(
            types=self.types[which], firsts=self.firsts[which], seconds=self.seconds[which],
            first_speeds=self.first_speeds[which], second_speeds=self.second_speeds[which], gpus=self.gpus[which],
        )  # fmt: skip


def alone_columns(queue: Queue) -> Columns:
    firsts, types = np.nonzero(queue.speeds)
    return Columns(
        types=types,
        firsts=firsts,
        seconds=np.full(len(firsts), -1),
        first_speeds=queue.speeds[firsts, types],
        second_speeds=np.zeros(len(firsts)),
        gpus=queue.gpus[firsts],
    )


def pair_columns(queue: Queue, value: Floats, task_price: Floats, type_price: Floats, most: int) -> Columns:
    """The pairs that bring most beyond what they cost: `value` a step, less the prices of both tasks and of the GPUs."""
    upper = np.triu_indices(queue.size, 1)
    found = [_pairs_on(queue, number, upper, value, task_price, price) for number, price in enumerate(type_price)]
    profit = np.concatenate([each[0] for each in found])
    columns = found[0][1]
    for _, more in found[1:]:
        columns = columns.joined(more)
    return columns.chosen(np.argsort(-profit)[:most])


def _pairs_on(
    queue: Queue, number: int, upper: tuple[Ints, Ints], value: Floats, task_price: Floats, price: float
) -> tuple[Floats, Columns]:
    speeds = queue.table.paired[number][np.ix_(queue.classes, queue.classes)] * queue.efficiency[:, number, None]
    brought = speeds * value[:, None] - task_price[:, None]
    total = brought + brought.T - price * queue.gpus[:, None]
    where = (speeds[upper] > 0) & (total[upper] > _LEAST_PROFIT)
    firsts, seconds = upper[0][where], upper[1][where]
    return total[firsts, seconds], Columns(
        types=np.full(len(firsts), number),
        firsts=firsts,
        seconds=seconds,
        first_speeds=speeds[firsts, seconds],
        second_speeds=speeds[seconds, firsts],
        gpus=queue.gpus[firsts],
    )

"""Below what no plan can come, whatever its solver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property

import numpy as np

from tonnage.allocate.areas import Areas
from tonnage.allocate.assign.bounds import relaxed_makespan
from tonnage.allocate.assign.completion import completion_bound
from tonnage.allocate.assign.problem import Instance
from tonnage.allocate.company import Company
from tonnage.allocate.intervals import Bound, Intervals, can_be_bounded
from tonnage.allocate.kinds import kinds_of
from tonnage.allocate.linear import NotSolved, Shares, ending_together
from tonnage.allocate.objectives import Objective, joules, lateness, own_seconds
from tonnage.allocate.problem import Problem, Task
from tonnage.allocate.queue import Queue, new_queue
from tonnage.allocate.speeds import Floats, SpeedTable, TaskClass

_MOST_IN_PROGRAM = 400  # tasks; more of them are bounded by the sums alone


class Bounds:
    """What every plan for these tasks of a problem must obey. All of them can run."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.tasks = problem, list(problem.tasks)
        self.areas = Areas(problem, self.tasks)

    def lower(self, objective: Objective) -> Bound:
        return _BOUNDS[objective](self) if self.tasks else self.only(0.0)

    def only(self, value: float) -> Bound:
        """One that does not depend on how many GPUs there are."""
        return Bound(value, np.zeros(len(self.problem.models)))

    @cached_property
    def even(self) -> Shares | None:
        """All tasks at the speeds at which they would end together, in parts of the time on each model and in pairs.

        None where they are too many, or more than two may be together, or their numbers are too far apart.
        """
        if len(self.tasks) > _MOST_IN_PROGRAM or self.problem.most_together > 2:
            return None
        with suppress(NotSolved):
            return ending_together(as_queue(self.problem, self.tasks))
        return None

    def instance(self, seconds_on: Callable[[Task, str], float]) -> Instance:
        """As arrays: so many seconds of each task on each model."""
        models, tasks, infinite = self.problem.models, self.tasks, float("inf")
        return Instance(
            seconds=np.array([[seconds_on(t, g) if g in t.profiles else infinite for g in models] for t in tasks]),
            memory_bytes=np.zeros((len(tasks), len(models)), dtype=np.int64),  # who fits nowhere is not among the tasks
            counts=np.array([len(self.problem.devices_of(gpu)) for gpu in models]),
            capacity_bytes=np.ones(len(models), dtype=np.int64),
            resident=False,
            weights=np.array([task.weight for task in tasks]),
        )

    @cached_property
    def longest_seconds(self) -> float:
        """Of a task and all for whom it waits."""
        return max(earliest_ends(self.tasks).values())

    @cached_property
    def area_seconds(self) -> float:
        """All GPU seconds over all GPUs, each task where it takes least."""
        return sum(self.areas.least_seconds(task) * task.gpus for task in self.tasks) / len(self.problem.devices)

    def of_area(self, value: float) -> Bound:
        """One that is inversely proportional to the number of GPUs, whatever they are."""
        return Bound(value, np.full(len(self.problem.models), value / (len(self.problem.devices) + 1)))

    def by_intervals(self, solve: Callable[[Intervals], Bound]) -> Bound:
        """From a program over intervals of time; 0 where that is too large, or its numbers are too far apart."""
        if can_be_bounded(self.problem, self.tasks):
            with suppress(NotSolved):
                return solve(self._intervals())
        return self.only(0.0)

    def _intervals(self) -> Intervals:
        """With a horizon in which good plans have done most."""
        released = max(task.release_seconds for task in self.tasks)
        horizon = released + 2.0 * max(self.area_seconds, self.longest_seconds)
        return Intervals(self.problem, self.tasks, self.areas.seconds, horizon)


def earliest_ends(tasks: Sequence[Task]) -> dict[str, float]:
    """Of each task if it had the GPUs that suit it whenever it wants them, and so had all for whom it waits."""
    by_name = {task.name: task for task in tasks}
    ends: dict[str, float] = {}

    def end(task: Task) -> float:
        if task.name not in ends:
            waits = [end(by_name[name]) for name in task.after if name in by_name]
            ends[task.name] = max([task.release_seconds, *waits]) + task.least_seconds
        return ends[task.name]

    for task in tasks:
        end(task)
    return ends


def as_queue(problem: Problem, tasks: Sequence[Task]) -> Queue:
    """The classes are the tasks' kinds."""
    models, kinds = problem.models, kinds_of(tasks)
    alone = np.array([[t.steps / t.seconds_on(g) if g in t.profiles else 0.0 for g in models] for t in kinds.examples])
    table = SpeedTable(
        types=models,
        classes=tuple(TaskClass(name=task.name, gpus=task.gpus) for task in kinds.examples),
        alone=alone,
        paired=_paired(problem, kinds.examples, alone),
    )
    capacity = np.array([len(problem.devices_of(gpu)) for gpu in models])
    return new_queue(table, capacity, kinds.numbers, np.array([task.steps for task in tasks], dtype=float))


def _paired(problem: Problem, tasks: Sequence[Task], alone: Floats) -> Floats:
    """Speeds of pairs; more than two together are bounded in another way."""
    company, paired = Company(problem), np.zeros((len(problem.models), len(tasks), len(tasks)))
    if problem.most_together < 2:
        return paired
    sharing = [number for number, task in enumerate(tasks) if task.may_share and task.gpus == 1]
    for kind, gpu in enumerate(problem.models):
        largest = max(problem.devices_of(gpu), key=lambda device: device.memory_bytes)
        able = [number for number in sharing if gpu in tasks[number].profiles]
        for a in able:
            for b in able:
                both = [tasks[a].profiles[gpu], tasks[b].profiles[gpu]]
                if company.welcome(largest, both):
                    paired[kind, a, b] = alone[a, kind] * company.speeds(both)[0]
    return paired


def _highest(*bounds: Bound) -> Bound:
    return max(bounds, key=lambda bound: bound.value)


def _makespan(bounds: Bounds) -> Bound:
    longest = bounds.only(bounds.longest_seconds)
    if (even := bounds.even) is not None:
        return _highest(longest, Bound(1.0 / even.value, even.type_prices / even.value**2))
    if all(task.gpus == 1 for task in bounds.tasks):
        relaxed = relaxed_makespan(bounds.instance(bounds.areas.seconds))
        return _highest(longest, Bound(relaxed.bound, relaxed.prices.second * relaxed.bound))
    return _highest(longest, bounds.of_area(bounds.area_seconds))


def _completion(bounds: Bounds) -> Bound:
    weight = np.array([task.weight for task in bounds.tasks])
    total = float(weight.sum())
    released = float(sum(task.weight * task.release_seconds for task in bounds.tasks))
    found = _completion_on_one(bounds)
    single = all(task.gpus == 1 for task in bounds.tasks)
    if single:
        found = _highest(found, _completion_by_positions(bounds).shifted(released, total))
    if released or not single:
        by_intervals = bounds.by_intervals(lambda program: program.least_total(weight))
        found = _highest(found, by_intervals.shifted(released, total))
    return found


def _completion_by_positions(bounds: Bounds) -> Bound:
    """Each GPU works off its tasks' areas, the shortest first. A task ends half of its own time after the middle of it."""
    charged = bounds.instance(bounds.areas.seconds)
    alone = bounds.instance(lambda task, gpu: task.seconds_on(gpu)).seconds
    finite = np.isfinite(alone)
    extra = (np.where(finite, alone, 0.0) - np.where(finite, charged.seconds, 0.0)) / 2
    return Bound(*completion_bound(charged, extra))


def _completion_on_one(bounds: Bounds) -> Bound:
    """Of one machine as fast as all together, shortest first by weight; and of no waiting at all."""
    tasks, areas = bounds.tasks, bounds.areas
    total = sum(task.weight for task in tasks)
    ends = earliest_ends(tasks)
    alone = sum(task.weight * (ends[task.name] - task.release_seconds) for task in tasks)
    work = {task.name: areas.least_seconds(task) * task.gpus / len(bounds.problem.devices) for task in tasks}
    now = waited = 0.0
    for task in sorted(tasks, key=lambda task: work[task.name] / task.weight):
        now += work[task.name]
        # Half of its own time: on one machine the middle of its work counts (Eastman, Even and Isaacs, 1964).
        waited += task.weight * (now - work[task.name] / 2 + task.least_seconds / 2 - task.release_seconds)
    return _highest(bounds.only(alone / total), bounds.of_area(waited / total))


def _deadline(bounds: Bounds) -> Bound:
    tasks, ends = bounds.tasks, earliest_ends(bounds.tasks)
    alone = bounds.only(sum(lateness(task, ends[task.name]) for task in tasks))
    due = np.array([np.inf if task.deadline_seconds is None else task.deadline_seconds for task in tasks])
    if np.isinf(due).all():
        return alone
    weight = np.where(np.isinf(due), 0.0, [task.weight for task in tasks])
    due = np.where(np.isinf(due), 0.0, due)
    late = bounds.by_intervals(lambda program: program.least_beyond(due, weight, sum_of_all=True))
    return _highest(alone, late)


def _slowdown(bounds: Bounds, own: dict[str, float]) -> Bound:
    """If nobody is slowed down more than so much, all that are no longer than a task end within that of its own time."""
    tasks, ends = bounds.tasks, earliest_ends(bounds.tasks)
    alone = bounds.only(max((ends[task.name] - task.release_seconds) / own[task.name] for task in tasks))
    if any(task.release_seconds for task in tasks):
        return alone
    work = worst = 0.0
    for task in sorted(tasks, key=lambda task: own[task.name]):
        work += bounds.areas.least_seconds(task) * task.gpus / len(bounds.problem.devices)
        worst = max(worst, work / own[task.name])
    nothing, weight = np.zeros(len(tasks)), np.array([1.0 / own[task.name] for task in tasks])
    slowed = bounds.by_intervals(lambda program: program.least_beyond(nothing, weight, sum_of_all=False))
    return _highest(alone, bounds.of_area(worst), slowed)


def _fairness(bounds: Bounds) -> Bound:
    return _slowdown(bounds, own_seconds(bounds.problem, Objective.FAIRNESS))


def _finish_time(bounds: Bounds) -> Bound:
    return _slowdown(bounds, own_seconds(bounds.problem, Objective.FINISH_TIME))


def _energy(bounds: Bounds) -> Bound:
    return bounds.only(sum(min(joules(task, gpu) for gpu in task.profiles) for task in bounds.tasks))


def _cost(bounds: Bounds) -> Bound:
    problem, areas = bounds.problem, bounds.areas
    cheapest = {gpu: min(device.price_usd_hour for device in problem.devices_of(gpu)) for gpu in problem.models}
    each = [
        min(areas.seconds(task, gpu) / 3600 * cheapest[gpu] * task.gpus for gpu in task.profiles)
        for task in bounds.tasks
    ]
    return bounds.only(sum(each))


_BOUNDS: dict[Objective, Callable[[Bounds], Bound]] = {
    Objective.MAKESPAN: _makespan, Objective.COMPLETION: _completion, Objective.DEADLINE: _deadline,
    Objective.FAIRNESS: _fairness, Objective.FINISH_TIME: _finish_time, Objective.ENERGY: _energy, Objective.COST: _cost,
}  # fmt: skip

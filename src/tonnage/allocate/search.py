"""The search for a good plan: starts of several kinds, then changes of the best one.

Tasks that have one GPU and wait for nobody are moved between GPUs, which is cheap. For gangs and tasks that wait for
others, the order changes in which all are placed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from tonnage.allocate.assign import Assigned, least_makespan, least_total_completion
from tonnage.allocate.bounds import Bounds
from tonnage.allocate.company import Company
from tonnage.allocate.exchange import Exchange
from tonnage.allocate.lanes import Lanes, movable
from tonnage.allocate.objectives import Objective, value_of
from tonnage.allocate.orders import NOTHING, Found, Orders, Wishes, better
from tonnage.allocate.plan import Assignment
from tonnage.allocate.problem import Task
from tonnage.allocate.timetable import assignments_of

_MOST_PLACED = 300_000  # tasks times GPUs: for more, placing them one by one takes too long
_CHANGES = 300  # of the order, before tasks are moved between GPUs
_FIRST_CHANGES = 20  # of each task, on every start; then the best one goes on
_SLACK = 0.03  # beyond the bound: no task goes where it alone takes longer

KeepGoing = Callable[[], bool]


def best_found(objective: Objective, bounds: Bounds, bound: float, keep_going: KeepGoing) -> Found:
    """Until the bound is met, nothing better is found for long, or nobody wants to go on."""
    return _Search(objective, bounds, bound, keep_going).run()


class _Search:
    def __init__(self, objective: Objective, bounds: Bounds, bound: float, keep_going: KeepGoing) -> None:
        self.objective, self.bounds, self.bound, self.keep_going = objective, bounds, bound, keep_going
        self.problem = replace(bounds.problem, tasks=tuple(_alone_where_needed(bounds.tasks)))
        self.tasks = {task.name: task for task in self.problem.tasks}
        self.company = Company(self.problem)
        self.movable = movable(self.problem.tasks)
        self.best: Found = (float("inf"), [])

    def run(self) -> Found:
        orders = Orders(self.company, self.objective)
        if len(self.movable) == len(self.tasks):
            self._exchange([*self._assigned(), *self._ordered(orders)])
            return self.best
        self._offer(orders.best_start(self._wishes()))
        self._offer(orders.improve(self._is_enough, self._for(_CHANGES)))
        if self.movable:
            self._exchange([self._lanes(self.best[1])])
        self._offer(orders.improve(self._is_enough, self.keep_going))
        # Where nothing can be better, tasks may still end earlier that do not count for it.
        self._offer(orders.improve(lambda: False, self._for(_CHANGES)))
        return self.best

    def _offer(self, found: Found) -> None:
        self.best = better(found, self.best) if self.best[1] else found

    def _is_enough(self) -> bool:
        return self.best[0] <= self.bound * (1 + 1e-9)

    def _for(self, changes: int) -> KeepGoing:
        left = iter(range(changes))
        return lambda: next(left, None) is not None and self.keep_going()

    # -- starts -------------------------------------------------------------------------------------------------------

    def _wishes(self) -> Iterator[Wishes]:
        """The models on which the linear program of the makespan does most of each task."""
        yield NOTHING
        tasks, models = self.problem.tasks, self.problem.models
        if self.objective is Objective.MAKESPAN and (even := self.bounds.even) is not None:
            done = even.columns.done(even.shares, len(tasks), len(models))
            yield {task.name: models[int(row.argmax())] for task, row in zip(tasks, done, strict=True) if row.any()}

    def _ordered(self, orders: Orders) -> Iterator[Lanes]:
        if len(self.tasks) * len(self.problem.devices) <= _MOST_PLACED or self.objective in _ONLY_ORDERED:
            yield self._lanes(orders.best_start(self._wishes())[1])

    def _assigned(self) -> Iterator[Lanes]:
        """By the solvers for many tasks, as if each took its least part of a GPU's time."""
        seconds = self.bounds.areas.seconds
        if self.objective is Objective.MAKESPAN:
            longest = self.bound * (1 + _SLACK)

            def not_too_long(task: Task, gpu: str) -> float:
                return seconds(task, gpu) if task.seconds_on(gpu) <= max(longest, task.least_seconds) else float("inf")

            instance = self.bounds.instance(not_too_long)
            yield self._as_lanes(least_makespan(instance, keep_going=self._for(self._first_changes)))
        elif self.objective not in _ONLY_ORDERED:
            yield self._as_lanes(least_total_completion(self.bounds.instance(seconds)))

    def _as_lanes(self, answer: Assigned) -> Lanes:
        problem, lanes = self.problem, Lanes(self.company, self.objective, self.movable)
        there = [[number for number, d in enumerate(problem.devices) if d.gpu == gpu] for gpu in problem.models]
        orders: list[list[Task]] = [[] for _ in lanes.orders]
        for number in np.argsort(answer.positions, kind="stable"):
            task, wanted = problem.tasks[number], there[answer.types[number]][answer.gpus[number]]
            if not lanes.may_have(task, wanted):
                wanted = min(lanes.allowed[task.name], key=lambda lane: len(orders[lane]))
            orders[wanted].append(task)
        for lane, order in enumerate(orders):
            lanes.set_best(lane, order)
        return lanes

    def _lanes(self, made: Sequence[Assignment]) -> Lanes:
        """What is fixed on a GPU, and what begins before that is over, comes before its lane."""
        lanes, moving = Lanes(self.company, self.objective, self.movable), {task.name for task in self.movable}
        numbers = {device.place: number for number, device in enumerate(self.problem.devices)}
        there: list[list[Assignment]] = [[] for _ in numbers]
        for each in sorted(made, key=lambda each: each.start_seconds):
            for place in each.gpus:
                there[numbers[place]].append(each)
        for lane, assignments in enumerate(there):
            fixed = max((each.end_seconds for each in assignments if each.task not in moving), default=-1.0)
            before = [each for each in assignments if each.start_seconds < fixed]
            lanes.begin(lane, [(self.tasks[each.task], each.start_seconds) for each in before])
            lanes.set(lane, [self.tasks[each.task] for each in assignments[len(before) :]])
        return lanes

    # -- changes ------------------------------------------------------------------------------------------------------

    @property
    def _first_changes(self) -> int:
        return _FIRST_CHANGES * len(self.tasks)

    def _exchange(self, starts: Sequence[Lanes]) -> None:
        """A little on every start, then on with the best."""
        enough = starts[0].enough(self.bound) * (1 + 1e-9)
        if len(starts) > 1:
            for lanes in starts:
                Exchange(lanes).run(enough, self._for(self._first_changes))
        best = min(starts, key=lambda lanes: lanes.total)
        Exchange(best).run(enough, self.keep_going)
        self._offer(self._found(best))

    def _found(self, lanes: Lanes) -> Found:
        places = [device.place for device in self.problem.devices]
        starts: dict[str, tuple[float, tuple[str, ...]]] = {}
        ends: dict[str, float] = {}
        for lane, order in enumerate(lanes.orders):
            played = lanes.play(lane, order)
            for name, start in played.starts.items():
                before = starts[name][1] if name in starts else ()
                starts[name] = start, (*before, places[lane])
            ends |= {task.name: end for task, end in played.ends}
        made = assignments_of(starts, ends)
        return value_of(self.problem, self.objective, made), made


_ONLY_ORDERED = (Objective.ENERGY, Objective.COST)


def _alone_where_needed(tasks: Sequence[Task]) -> Iterator[Task]:
    """Nobody joins a gang, nor a task that others wait for: when it ends would not be known."""
    awaited = {name for task in tasks for name in task.after}
    for task in tasks:
        yield replace(task, may_share=task.may_share and task.gpus == 1 and task.name not in awaited)

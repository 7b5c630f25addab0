"""Plans for tasks of every kind: good orders of placing them, and changes of the order that make the plan better."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from tonnage.allocate.company import Company
from tonnage.allocate.objectives import Objective, value_of
from tonnage.allocate.plan import Assignment
from tonnage.allocate.precedence import in_order
from tonnage.allocate.problem import Task
from tonnage.allocate.timetable import Timetable

_SAME = 1e-9

Wishes = Mapping[str, str]  # models of GPUs that some tasks shall have
NOTHING: Wishes = MappingProxyType({})

Found = tuple[float, list[Assignment]]


def better(one: Found, other: Found) -> Found:
    """By its value; of equal ones, that in which tasks end earlier."""
    if abs(one[0] - other[0]) > _SAME * abs(other[0]):
        return min(one, other, key=lambda found: found[0])
    return min(one, other, key=lambda found: sum(each.end_seconds for each in found[1]))


@dataclass(frozen=True, slots=True)
class Start:
    """The order in which tasks are placed, and models of GPUs that some of them shall have."""

    order: tuple[Task, ...]
    preferred: Wishes


class Orders:
    def __init__(self, company: Company, objective: Objective) -> None:
        self.company, self.problem, self.objective = company, company.problem, objective
        self.best: Found = (float("inf"), [])
        self.start = Start((), NOTHING)
        self._chance = np.random.default_rng(0)

    def best_start(self, wishes: Iterable[Wishes]) -> Found:
        for wish in wishes:
            for order in _orders(self.objective, self.problem.tasks):
                self._keep(Start(tuple(order), wish))
        return self.best

    def improve(self, enough: Callable[[], bool], keep_going: Callable[[], bool]) -> Found:
        """Changes of the best order, until it is good enough or nothing better is found for long."""
        misses = 0
        while misses < _patience(len(self.problem.tasks)) and not enough() and keep_going():
            misses = 0 if self._keep(self._changed()) else misses + 1
        return self.best

    def _keep(self, start: Start) -> bool:
        """If it is no worse; whether it is better."""
        found, before = self._place(start), self.best[0]
        if not self.best[1] or better(found, self.best) is found:
            self.best, self.start = found, start
        return found[0] < before * (1 - _SAME)

    def _place(self, start: Start) -> Found:
        table = Timetable(self.company, self.objective, start.preferred)
        for task in in_order(start.order):
            table.place(task)
        made = table.assignments()
        return value_of(self.problem, self.objective, made), made

    def _changed(self) -> Start:
        """Put one task earlier, mostly one that shares its GPUs with the last to end; let two change places; or let one
        take another model."""
        chance, changed = self._chance, list(self.start.order)
        numbers = self._critical(changed)
        pick = int(chance.choice(numbers)) if numbers and chance.random() < 0.6 else int(chance.integers(len(changed)))
        kind = chance.random()
        if kind < 0.3:
            models = list(changed[pick].profiles)
            wish = models[int(chance.integers(len(models)))]
            return replace(self.start, preferred={**self.start.preferred, changed[pick].name: wish})
        if kind < 0.65:
            changed.insert(int(chance.integers(pick + 1)), changed.pop(pick))
        else:
            other = int(chance.integers(len(changed)))
            changed[pick], changed[other] = changed[other], changed[pick]
        return replace(self.start, order=tuple(changed))

    def _critical(self, order: Sequence[Task]) -> list[int]:
        made = self.best[1]
        last = max(made, key=lambda each: each.end_seconds)
        critical = {each.task for each in made if set(each.gpus) & set(last.gpus)}
        return [number for number, task in enumerate(order) if task.name in critical]


def _patience(tasks: int) -> int:
    return max(200, 40_000 // max(tasks, 1))


def _orders(objective: Objective, tasks: Sequence[Task]) -> Iterator[list[Task]]:
    """Longest first packs well, shortest first waits least, the earliest deadline first is late least."""
    work = {task.name: task.least_seconds * task.gpus for task in tasks}
    last = float("inf")
    deadline = {task.name: last if task.deadline_seconds is None else task.deadline_seconds for task in tasks}
    longest = sorted(tasks, key=lambda task: (-task.gpus, -work[task.name]))
    shortest = sorted(tasks, key=lambda task: work[task.name] / task.weight)
    urgent = sorted(tasks, key=lambda task: (deadline[task.name], work[task.name] / task.weight))
    slack = sorted(tasks, key=lambda task: deadline[task.name] - task.least_seconds)
    match objective:
        case Objective.MAKESPAN:
            yield from (longest, sorted(tasks, key=lambda task: -task.least_seconds), shortest)
        case Objective.DEADLINE:
            yield from (urgent, slack, shortest)
        case Objective.COMPLETION | Objective.FAIRNESS | Objective.FINISH_TIME:
            yield from (shortest, sorted(tasks, key=lambda task: task.least_seconds / task.weight))
        case Objective.ENERGY | Objective.COST:
            yield from (shortest, longest)

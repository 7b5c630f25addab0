"""Plans for tasks of every kind: good orders of placing them, and changes of the order that make the plan better."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tonnage.allocate.objectives import Objective, value_of
from tonnage.allocate.plan import Assignment
from tonnage.allocate.precedence import in_order
from tonnage.allocate.problem import Problem, Task
from tonnage.allocate.timetable import Timetable

Found = tuple[float, list[Assignment]]


def best_found(
    problem: Problem, objective: Objective, tasks: Sequence[Task], bound: float, keep_going: Callable[[], bool]
) -> Found:
    """The best of some orders, then of changes of the best, until the bound is met or nobody wants to go on."""
    best, order = _best_order(problem, objective, tasks)
    chance = np.random.default_rng(0)
    misses = 0
    while best[0] > bound * (1 + 1e-9) and misses < _patience(len(tasks)) and keep_going():
        changed = _change(order, best[1], chance)
        found = _place(problem, objective, changed)
        if found[0] < best[0] * (1 - 1e-12):
            best, order, misses = found, changed, 0
        else:
            misses += 1
    return best


def _patience(tasks: int) -> int:
    return max(50, 20_000 // max(tasks, 1))


def _place(problem: Problem, objective: Objective, order: Sequence[Task]) -> Found:
    table = Timetable(problem, objective)
    for task in in_order(order):
        table.place(task)
    made = table.assignments()
    return value_of(problem, objective, made), made


def _best_order(problem: Problem, objective: Objective, tasks: Sequence[Task]) -> tuple[Found, list[Task]]:
    tried = [(_place(problem, objective, order), order) for order in _orders(objective, tasks)]
    return min(tried, key=lambda pair: pair[0][0])


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
        case Objective.COMPLETION | Objective.FAIRNESS:
            yield from (shortest, sorted(tasks, key=lambda task: task.least_seconds / task.weight))
        case Objective.ENERGY | Objective.COST:
            yield from (shortest, longest)


def _change(order: list[Task], made: list[Assignment], chance: np.random.Generator) -> list[Task]:
    """Put one task earlier, mostly one that shares its GPUs with the last to end; or let two change places."""
    changed = list(order)
    last = max(made, key=lambda each: each.end_seconds)
    critical = {each.task for each in made if set(each.gpus) & set(last.gpus)}
    numbers = [number for number, task in enumerate(changed) if task.name in critical]
    pick = int(chance.choice(numbers)) if numbers and chance.random() < 0.6 else int(chance.integers(len(changed)))
    if chance.random() < 0.5:
        changed.insert(int(chance.integers(pick + 1)), changed.pop(pick))
    else:
        other = int(chance.integers(len(changed)))
        changed[pick], changed[other] = changed[other], changed[pick]
    return changed

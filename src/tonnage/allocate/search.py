"""Plans for tasks of every kind: good orders of placing them, and changes of the order that make the plan better."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from tonnage.allocate.bounds import MOST_IN_PROGRAM, makespan_program
from tonnage.allocate.objectives import Objective, value_of
from tonnage.allocate.plan import Assignment
from tonnage.allocate.precedence import in_order
from tonnage.allocate.problem import Problem, Task
from tonnage.allocate.timetable import Timetable

NOTHING: Mapping[str, str] = MappingProxyType({})

Found = tuple[float, list[Assignment]]


@dataclass(frozen=True, slots=True)
class Start:
    """The order in which tasks are placed, and models of GPUs that some of them shall have."""

    order: tuple[Task, ...]
    preferred: Mapping[str, str]


def best_found(
    problem: Problem, objective: Objective, tasks: Sequence[Task], bound: float, keep_going: Callable[[], bool]
) -> Found:
    """The best of some starts, then of changes of the best, until the bound is met or nobody wants to go on."""
    # Nobody joins a gang, nor a task that others wait for: when it ends would not be known.
    awaited = {name for task in tasks for name in task.after}
    alone = {task.name for task in tasks if task.gpus > 1 or task.name in awaited}
    tasks = [replace(task, may_share=task.may_share and task.name not in alone) for task in tasks]
    best, start = _best_start(problem, objective, tasks)
    chance = np.random.default_rng(0)
    misses = 0
    while best[0] > bound * (1 + 1e-9) and misses < _patience(len(tasks)) and keep_going():
        changed = _change(start, best[1], chance)
        found = _place(problem, objective, changed)
        if found[0] <= best[0]:
            misses = 0 if found[0] < best[0] * (1 - 1e-12) else misses + 1
            best, start = found, changed
        else:
            misses += 1
    return best


def _patience(tasks: int) -> int:
    return max(200, 40_000 // max(tasks, 1))


def _place(problem: Problem, objective: Objective, start: Start) -> Found:
    table = Timetable(problem, objective, start.preferred)
    for task in in_order(start.order):
        table.place(task)
    made = table.assignments()
    return value_of(problem, objective, made), made


def _best_start(problem: Problem, objective: Objective, tasks: Sequence[Task]) -> tuple[Found, Start]:
    wishes = [NOTHING, *_wishes(problem, objective, tasks)]
    starts = [Start(tuple(order), wish) for wish in wishes for order in _orders(objective, tasks)]
    tried = [(_place(problem, objective, start), start) for start in starts]
    return min(tried, key=lambda pair: pair[0][0])


def _wishes(problem: Problem, objective: Objective, tasks: Sequence[Task]) -> Iterator[Mapping[str, str]]:
    """The models on which the linear program of the makespan does most of each task."""
    if objective is not Objective.MAKESPAN or not 1 < len(tasks) <= MOST_IN_PROGRAM or problem.most_together > 2:
        return
    answer = makespan_program(problem, tasks)
    columns, done = answer.columns, np.zeros((len(tasks), len(problem.models)))
    np.add.at(done, (columns.firsts, columns.types), answer.shares * columns.first_speeds)
    second = columns.seconds >= 0
    np.add.at(done, (columns.seconds[second], columns.types[second]), (answer.shares * columns.second_speeds)[second])
    yield {task.name: problem.models[int(done[number].argmax())] for number, task in enumerate(tasks)}


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


def _change(start: Start, made: list[Assignment], chance: np.random.Generator) -> Start:
    """Put one task earlier, mostly one that shares its GPUs with the last to end; let two change places; or let one take
    another model."""
    changed = list(start.order)
    last = max(made, key=lambda each: each.end_seconds)
    critical = {each.task for each in made if set(each.gpus) & set(last.gpus)}
    numbers = [number for number, task in enumerate(changed) if task.name in critical]
    pick = int(chance.choice(numbers)) if numbers and chance.random() < 0.6 else int(chance.integers(len(changed)))
    kind = chance.random()
    if kind < 0.3:
        models = list(changed[pick].profiles)
        wish = models[int(chance.integers(len(models)))]
        return replace(start, preferred={**start.preferred, changed[pick].name: wish})
    if kind < 0.65:
        changed.insert(int(chance.integers(pick + 1)), changed.pop(pick))
    else:
        other = int(chance.integers(len(changed)))
        changed[pick], changed[other] = changed[other], changed[pick]
    return replace(start, order=tuple(changed))

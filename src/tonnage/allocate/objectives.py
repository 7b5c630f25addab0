"""What a plan is judged by: a number that is better when it is smaller."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from enum import StrEnum

from tonnage.allocate.plan import Assignment
from tonnage.allocate.problem import Problem, Task
from tonnage.units import format_energy, format_seconds, format_usd


class Objective(StrEnum):
    MAKESPAN = "makespan"  # seconds until all is done
    COMPLETION = "completion"  # mean of the seconds until each is done, by weight
    DEADLINE = "deadline"  # seconds that tasks are late, by weight, in all
    FAIRNESS = "fairness"  # the worst of completion beside the task's own time on the GPU that suits it
    FINISH_TIME = "finish-time"  # the same beside its time on an equal part of the cluster
    ENERGY = "energy"  # joules
    COST = "cost"  # US dollars


def words_for(objective: Objective, value: float) -> str:
    """A value as people read it."""
    match objective:
        case Objective.ENERGY:
            return format_energy(value)
        case Objective.COST:
            return format_usd(value)
        case Objective.FAIRNESS | Objective.FINISH_TIME:
            return f"{value:.3g}"
        case _:
            return format_seconds(value)


def value_of(problem: Problem, objective: Objective, assignments: Iterable[Assignment]) -> float:
    """Recomputed from the assignments alone."""
    tasks = {task.name: task for task in problem.tasks}
    placed = [(tasks[each.task], each) for each in assignments]
    return _VALUES[objective](problem, placed) if placed else 0.0


Placed = list[tuple[Task, Assignment]]


def _makespan(problem: Problem, placed: Placed) -> float:  # noqa: ARG001
    return max(each.end_seconds for _, each in placed)


def _completion(problem: Problem, placed: Placed) -> float:  # noqa: ARG001
    total = sum(task.weight * (each.end_seconds - task.release_seconds) for task, each in placed)
    return total / sum(task.weight for task, _ in placed)


def lateness(task: Task, end_seconds: float) -> float:
    return task.weight * max(0.0, end_seconds - task.deadline_seconds) if task.deadline_seconds is not None else 0.0


def _deadline(problem: Problem, placed: Placed) -> float:  # noqa: ARG001
    return sum(lateness(task, each.end_seconds) for task, each in placed)


def own_seconds(problem: Problem, objective: Objective) -> dict[str, float]:
    """What fairness sets beside a task's completion: its time on the GPUs that suit it, or on its equal part of all."""
    if objective is not Objective.FINISH_TIME:
        return {task.name: task.least_seconds for task in problem.tasks}
    return {task.name: _seconds_on_equal_part(problem, task) for task in problem.tasks}


def _seconds_on_equal_part(problem: Problem, task: Task) -> float:
    """Each task has as much of every model's time as any other, and is never faster than on the GPUs that suit it."""
    parts = (len(problem.devices_of(gpu)) / task.gpus / task.seconds_on(gpu) for gpu in task.profiles)
    return max(task.least_seconds, len(problem.tasks) / sum(parts))


def _fairness(problem: Problem, placed: Placed) -> float:
    own = own_seconds(problem, Objective.FAIRNESS)
    return max((each.end_seconds - task.release_seconds) / own[task.name] for task, each in placed)


def _finish_time(problem: Problem, placed: Placed) -> float:
    own = own_seconds(problem, Objective.FINISH_TIME)
    return max((each.end_seconds - task.release_seconds) / own[task.name] for task, each in placed)


def joules(task: Task, gpu: str) -> float:
    """What the task itself adds, however long it shares: its work on each of its GPUs."""
    return task.seconds_on(gpu) * task.profiles[gpu].watts * task.gpus


def _energy(problem: Problem, placed: Placed) -> float:
    models = {device.place: device.gpu for device in problem.devices}
    return sum(joules(task, models[each.gpus[0]]) for task, each in placed)


def _cost(problem: Problem, placed: Placed) -> float:
    """A GPU is paid for while anything is on it."""
    held: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for _, each in placed:
        for place in each.gpus:
            held[place].append((each.start_seconds, each.end_seconds))
    prices = {device.place: device.price_usd_hour for device in problem.devices}
    return sum(prices[place] * covered_seconds(spans) for place, spans in held.items()) / 3600


def covered_seconds(spans: list[tuple[float, float]]) -> float:
    """Of the time in which at least one span lasts."""
    total, until = 0.0, 0.0
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


_VALUES: dict[Objective, Callable[[Problem, Placed], float]] = {
    Objective.MAKESPAN: _makespan, Objective.COMPLETION: _completion, Objective.DEADLINE: _deadline,
    Objective.FAIRNESS: _fairness, Objective.FINISH_TIME: _finish_time, Objective.ENERGY: _energy, Objective.COST: _cost,
}  # fmt: skip

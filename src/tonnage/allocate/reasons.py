"""Why here, and why not there: one sentence for each placement."""

from __future__ import annotations

from dataclasses import replace

from tonnage.allocate.feasible import usable_devices
from tonnage.allocate.objectives import Objective
from tonnage.allocate.plan import Assignment, Plan
from tonnage.allocate.problem import Problem, Task
from tonnage.allocate.sharing import memory_needed
from tonnage.units import format_bytes, format_seconds


def with_reasons(problem: Problem, objective: Objective, plan: Plan) -> tuple[Assignment, ...]:
    tasks = {task.name: task for task in problem.tasks}
    models = {device.place: device.gpu for device in problem.devices}
    free = _first_free(problem, plan)
    return tuple(
        replace(each, reason=_reason(problem, objective, tasks, each, models[each.gpus[0]], free))
        for each in plan.assignments
    )


def _first_free(problem: Problem, plan: Plan) -> dict[str, float]:
    """When the first GPU of each model has nothing more to do."""
    ends = {device.place: 0.0 for device in problem.devices}
    for each in plan.assignments:
        for place in each.gpus:
            ends[place] = max(ends[place], each.end_seconds)
    return {gpu: min(ends[device.place] for device in problem.devices_of(gpu)) for gpu in problem.models}


def _reason(
    problem: Problem, objective: Objective, tasks: dict[str, Task], each: Assignment, gpu: str, free: dict[str, float]
) -> str:
    task = tasks[each.task]
    parts = [_why_model(problem, objective, task, gpu, free)]
    if each.beside:
        profiles = [tasks[name].profiles[gpu] for name in (each.task, *each.beside)]
        room = next(device.memory_bytes for device in problem.devices if device.place == each.gpus[0])
        parts.append(
            f"beside {', '.join(each.beside)}: together at most {format_bytes(memory_needed(profiles, problem.risk))} of "
            f"{format_bytes(room)}"
        )
    if each.start_seconds > task.release_seconds:
        waits = [name for name in task.after if tasks[name]]
        parts.append(f"after {', '.join(waits)}" if waits else f"waits {format_seconds(each.start_seconds)} for it")
    return "; ".join(parts)


def _why_model(problem: Problem, objective: Objective, task: Task, gpu: str, free: dict[str, float]) -> str:
    if task.pinned:
        return f"pinned to {', '.join(task.pinned)}"
    usable = [model for model in problem.models if len(usable_devices(problem, task, model)) >= task.gpus]
    if usable == [gpu]:
        return f"only {gpu} can hold it"
    seconds = {model: task.seconds_on(model) for model in usable}
    fastest = min(seconds, key=lambda model: seconds[model])
    if gpu == fastest:
        return f"fastest on {gpu} ({format_seconds(seconds[gpu])})"
    if objective in (Objective.ENERGY, Objective.COST):
        return f"needs least {'energy' if objective is Objective.ENERGY else 'money'} on {gpu}"
    return (
        f"{format_seconds(seconds[gpu])} on {gpu}; {fastest} ({format_seconds(seconds[fastest])}) is busy until "
        f"{format_seconds(free[fastest])} at least"
    )

"""Why not there: what a task would take on every model of GPU, beside where the plan puts it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tonnage.allocate.feasible import usable_devices
from tonnage.allocate.plan import Plan
from tonnage.allocate.problem import Problem, Task
from tonnage.allocate.sharing import memory_needed
from tonnage.units import format_bytes, format_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """One model of GPU for one task, in words."""

    gpu: str
    alone: str = ""  # how long the task takes there
    memory: str = ""
    free_from: str = ""  # when enough of them have nothing else to do
    done: str = ""  # when it would be done if it took them then
    verdict: str = ""


def alternatives(problem: Problem, plan: Plan, name: str) -> Iterator[Alternative]:
    task = next(each for each in problem.tasks if each.name == name)
    models = {device.place: device.gpu for device in problem.devices}
    chosen = next((models[each.gpus[0]] for each in plan.assignments if each.task == name), "")
    for gpu in problem.models:
        yield _alternative(problem, plan, task, gpu, chosen)


def _alternative(problem: Problem, plan: Plan, task: Task, gpu: str, chosen: str) -> Alternative:
    if gpu not in task.profiles:
        return Alternative(gpu=gpu, verdict=task.refused.get(gpu, "it cannot run there"))
    profile = task.profiles[gpu]
    usable = usable_devices(problem, task, gpu)
    alone = format_seconds(task.seconds_on(gpu))
    memory = format_bytes(memory_needed([profile], problem.risk))
    if len(usable) < task.gpus:
        return Alternative(
            gpu=gpu, alone=alone, memory=memory, verdict=f"{len(usable)} of {task.gpus} GPUs can hold it"
        )
    free = sorted(_free_from(plan, device.place, task.name) for device in usable)[task.gpus - 1]
    start = max(free, task.release_seconds)
    return Alternative(
        gpu=gpu, alone=alone, memory=memory, free_from=format_seconds(free),
        done=format_seconds(start + task.seconds_on(gpu)), verdict="chosen" if gpu == chosen else "",
    )  # fmt: skip


def _free_from(plan: Plan, place: str, task: str) -> float:
    """When a GPU has nothing more to do beside this task."""
    return max((each.end_seconds for each in plan.assignments if place in each.gpus and each.task != task), default=0.0)

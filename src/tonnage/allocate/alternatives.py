"""Why not there: what a task would take on every model of GPU, beside where the plan puts it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tonnage.allocate.feasible import usable_devices
from tonnage.allocate.plan import Assignment, Plan
from tonnage.allocate.problem import Problem, Profile, Task
from tonnage.allocate.sharing import memory_needed
from tonnage.errors import NotFound
from tonnage.hardware.catalogue import nearest

TOO_LITTLE_MEMORY = "its memory does not hold the task"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """One model of GPU for one task. What is None cannot be told, since it does not run there."""

    gpu: str
    chosen: bool = False
    alone_seconds: float | None = None  # how long the task takes there
    memory_bytes: int | None = None  # that it does not exceed, but for the wanted probability
    start_seconds: float | None = (
        None  # where it is chosen, as planned; elsewhere, when enough GPUs are done with theirs
    )
    end_seconds: float | None = None
    verdict: str = ""  # why it cannot run there
    profile: Profile | None = None

    def as_dict(self) -> dict[str, Any]:
        return {
            "gpu": self.gpu,
            "chosen": self.chosen,
            "alone_seconds": self.alone_seconds,
            "memory_bytes": self.memory_bytes,
            "start_seconds": self.start_seconds,
            "end_seconds": self.end_seconds,
            "verdict": self.verdict,
            "profile": self.profile.as_dict() if self.profile is not None else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """One task: why it is where it is, or nowhere, and what else there is."""

    task: str
    reason: str
    alternatives: tuple[Alternative, ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "reason": self.reason,
            "alternatives": [each.as_dict() for each in self.alternatives],
        }


def explain(problem: Problem, plan: Plan, name: str) -> Why:
    task = find_task(problem, name)
    reasons = {each.task: each.reason for each in plan.assignments} | {each.task: each.reason for each in plan.unplaced}
    return Why(task=name, reason=reasons[name], alternatives=tuple(_alternatives(problem, plan, task)))


def find_task(problem: Problem, name: str) -> Task:
    """Raises `NotFound`, with the name that may be meant."""
    tasks = {task.name: task for task in problem.tasks}
    if name not in tasks:
        meant = nearest(name, tasks)
        hint = f"did you mean {meant}?" if meant else f"the first is called {next(iter(tasks))}"
        raise NotFound(f"there is no task {name}", hint)
    return tasks[name]


def _alternatives(problem: Problem, plan: Plan, task: Task) -> Iterator[Alternative]:
    models = {device.place: device.gpu for device in problem.devices}
    planned = {models[each.gpus[0]]: each for each in plan.assignments if each.task == task.name}
    for gpu in problem.models:
        yield _alternative(problem, plan, task, gpu, planned.get(gpu))


def _alternative(problem: Problem, plan: Plan, task: Task, gpu: str, planned: Assignment | None) -> Alternative:
    verdict = why_not(problem, task, gpu)
    if gpu not in task.profiles:
        return Alternative(gpu=gpu, verdict=verdict)
    profile = task.profiles[gpu]
    start, end = (planned.start_seconds, planned.end_seconds) if planned else _could_run(problem, plan, task, gpu)
    return Alternative(
        gpu=gpu,
        chosen=planned is not None,
        alone_seconds=task.seconds_on(gpu),
        memory_bytes=round(memory_needed([profile], problem.risk)),
        start_seconds=None if verdict else start,
        end_seconds=None if verdict else end,
        verdict=verdict,
        profile=profile,
    )


def why_not(problem: Problem, task: Task, gpu: str) -> str:
    """What speaks against a model of GPU; empty if nothing does."""
    if gpu not in task.profiles:
        return task.refused.get(gpu, "it cannot run there")
    if len(usable_devices(problem, task, gpu)) >= task.gpus:
        return ""
    devices = problem.devices_of(gpu)
    needed = memory_needed([task.profiles[gpu]], problem.risk)
    if len([device for device in devices if needed <= device.memory_bytes]) < min(task.gpus, len(devices)):
        return TOO_LITTLE_MEMORY
    if task.gpus > len(devices):
        return f"{len(devices)} of the {task.gpus} GPUs that it wants are there"
    return "it is pinned elsewhere" if task.pinned else "its nodes have too few of them"


def _could_run(problem: Problem, plan: Plan, task: Task, gpu: str) -> tuple[float, float]:
    """If it were put behind all that the plan has for enough GPUs of a model."""
    ends = {each.task: each.end_seconds for each in plan.assignments}
    before = max([task.release_seconds, *(ends.get(name, 0.0) for name in task.after)])
    free = sorted(_free_from(plan, device.place, task.name) for device in usable_devices(problem, task, gpu))
    start = max(before, free[task.gpus - 1] if len(free) >= task.gpus else 0.0)
    return start, start + task.seconds_on(gpu)


def _free_from(plan: Plan, place: str, task: str) -> float:
    """When a GPU has nothing more to do beside this task."""
    return max((each.end_seconds for each in plan.assignments if place in each.gpus and each.task != task), default=0.0)

"""Which tasks can run at all, and why the others cannot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tonnage.allocate.plan import Unplaced
from tonnage.allocate.problem import Device, Problem, Task
from tonnage.allocate.sharing import memory_needed
from tonnage.units import format_bytes


def usable_devices(problem: Problem, task: Task, gpu: str) -> list[Device]:
    """Of one model, those on which the task may run and fits."""
    profile = task.profiles.get(gpu)
    if profile is None:
        return []
    needed = memory_needed([profile], problem.risk)
    return [
        device
        for device in problem.devices_of(gpu)
        if needed <= device.memory_bytes
        and (not task.pinned or device.place in task.pinned)
        and (not task.nodes or device.node in task.nodes)
    ]


def split_feasible(problem: Problem, smallest: Mapping[str, str]) -> tuple[Problem, list[Unplaced]]:
    """The tasks that can run, with profiles only for the models on which they can; and the others.

    `smallest` names, for a task, the smallest GPU of the catalogue that would do.
    """
    reasons: dict[str, str] = {}
    reduced: list[Task] = []
    for task in problem.tasks:
        models = [gpu for gpu in problem.models if len(usable_devices(problem, task, gpu)) >= task.gpus]
        reduced.append(replace(task, profiles={gpu: task.profiles[gpu] for gpu in models}))
        if not models:
            reasons[task.name] = _why_not(problem, task, smallest.get(task.name, ""))
    _follow(problem.tasks, reasons)
    able = tuple(task for task in reduced if task.name not in reasons)
    return replace(problem, tasks=able), [Unplaced(task=name, reason=reasons[name]) for name in reasons]


def _follow(tasks: Sequence[Task], reasons: dict[str, str]) -> None:
    """Who waits for a task that never runs does not run either."""
    changed = True
    while changed:
        changed = False
        for task in tasks:
            stuck = [name for name in task.after if name in reasons]
            if stuck and task.name not in reasons:
                reasons[task.name] = f"waits for {stuck[0]}, which cannot run"
                changed = True


def _why_not(problem: Problem, task: Task, smallest: str) -> str:
    if task.pinned and (missing := _missing_places(problem.devices, task.pinned)):
        return f"is pinned to {missing[0]}, which the cluster does not have"
    if len(task.pinned) not in (0, task.gpus):
        return f"is pinned to {len(task.pinned)} GPUs and wants {task.gpus}"
    if task.nodes and not any(device.node in task.nodes for device in problem.devices):
        return f"may run on {', '.join(task.nodes)} alone, which the cluster does not have"
    known = [gpu for gpu in problem.models if gpu in task.profiles]
    if not known:
        return _no_model(problem, task) + (f"; {smallest} would do" if smallest else "")
    largest = max((d for gpu in known for d in problem.devices_of(gpu)), key=lambda device: device.memory_bytes)
    need = min(memory_needed([task.profiles[gpu]], problem.risk) for gpu in known)
    if need > largest.memory_bytes:
        hint = f"; {smallest} would do" if smallest else ""
        return (
            f"needs {format_bytes(need)} on a GPU, the largest that it can run on ({largest.gpu}) has "
            f"{format_bytes(largest.memory_bytes)}{hint}"
        )
    most = max(len(usable_devices(problem, task, gpu)) for gpu in known)
    return f"wants {task.gpus} GPUs of one model, at most {most} that it may use and fits on are there"


def _missing_places(devices: Iterable[Device], pinned: Sequence[str]) -> list[str]:
    there = {device.place for device in devices}
    return [place for place in pinned if place not in there]


def _no_model(problem: Problem, task: Task) -> str:
    reasons = {task.refused[gpu] for gpu in problem.models if gpu in task.refused}
    if len(reasons) == 1:
        return reasons.pop()
    because = [f"{gpu}: {task.refused[gpu]}" for gpu in problem.models if gpu in task.refused]
    if because:
        return f"runs on none of the cluster's GPUs ({'; '.join(because[:3])})"
    return f"has no speed for any GPU of the cluster ({', '.join(problem.models)})"

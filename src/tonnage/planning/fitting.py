"""A problem as an engine can carry it out: what was submitted stays where it is, and GPUs are shared where it can."""

from __future__ import annotations

from dataclasses import replace

from tonnage.allocate.problem import Problem
from tonnage.allocate.tasks_file import names_of
from tonnage.allocate.tasks_models import TasksFile
from tonnage.engines.base import Engine, EngineOptions, SharesGpus
from tonnage.engines.deploying import Deployments
from tonnage.planning.orders import places_of, run_name
from tonnage.planning.running import by_task


def pinned_as_submitted(problem: Problem, file: TasksFile, run: str, deployments: Deployments) -> Problem:
    """Tasks that an earlier command has submitted are planned where they are."""
    there = {device.place for device in problem.devices}
    known = by_task(deployments)
    runs = {name: run or run_name(section) for section in file.tasks for name in names_of(section)}
    pins: dict[str, tuple[str, ...]] = {}
    for name in runs:
        found = known.get((runs[name], name))
        if found is not None and (places := places_of(found.labels)) and set(places) <= there:
            pins[name] = places
    tasks = tuple(replace(task, pinned=pins.get(task.name, task.pinned)) for task in problem.tasks)
    return replace(problem, tasks=tasks)


def sharing_as_possible(problem: Problem, engine: Engine, options: EngineOptions) -> Problem:
    """Nobody shares where the engine would give each task a whole GPU: two side by side would run one after the other."""
    able = sum(task.may_share and task.gpus == 1 for task in problem.tasks)
    if problem.most_together == 1 or able < 2:
        return problem
    if isinstance(engine, SharesGpus) and engine.can_share(problem.models, options):
        return problem
    return replace(problem, most_together=1)

"""The verb `allocate`: from files and programs to a plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from tonnage.allocate.devices import devices_of_cluster
from tonnage.allocate.objectives import Objective
from tonnage.allocate.plan import Plan
from tonnage.allocate.problem import Device, Problem, Profile
from tonnage.allocate.profiles import tasks_of
from tonnage.allocate.sharing import memory_needed
from tonnage.allocate.solve import allocate_tasks
from tonnage.allocate.tasks_file import names_of, read_tasks
from tonnage.allocate.tasks_models import TaskSection, TasksFile
from tonnage.api import estimate
from tonnage.errors import CaptureError, NotFound, ProgramFailed, TonnageError, UsageError
from tonnage.estimate.estimate import Report
from tonnage.hardware import all_gpus, read_cluster
from tonnage.hardware.cluster import Cluster
from tonnage.hardware.gpu import Gpu
from tonnage.planning.measuring import with_measured

Progress = Callable[[str], None]
_SECONDS = 10.0  # for the search, unless told


def allocate(
    tasks: str | Path | TasksFile,
    *,
    cluster: str | Path | Cluster,
    objective: str = "makespan",
    seconds: float = _SECONDS,
    progress: Progress = lambda text: None,
) -> Plan:
    """Who runs where and when. Programs are followed on a virtual GPU; nothing runs."""
    problem, smallest = problem_of(tasks, cluster, progress)
    return plan_for(problem, objective, smallest=smallest, seconds=seconds, progress=progress)


def plan_for(
    problem: Problem,
    objective: str = "makespan",
    *,
    smallest: Mapping[str, str] | None = None,
    seconds: float = _SECONDS,
    progress: Progress = lambda text: None,
) -> Plan:
    """The best plan that is found in so many seconds."""
    began = time.monotonic()
    progress("looking for a good plan")
    plan = allocate_tasks(
        problem, objective_of(objective), smallest=smallest or {}, keep_going=lambda: time.monotonic() - began < seconds
    )
    return replace(plan, solver_seconds=time.monotonic() - began)


def problem_of(
    tasks: str | Path | TasksFile, cluster: str | Path | Cluster, progress: Progress = lambda text: None
) -> tuple[Problem, dict[str, str]]:
    """What is to be allocated, by what was measured where it was; and for tasks that fit nowhere the GPU that would do."""
    file = tasks if isinstance(tasks, TasksFile) else read_tasks(tasks)
    machines = cluster if isinstance(cluster, Cluster) else read_cluster(cluster)
    devices = devices_of_cluster(machines)
    if not devices:
        raise UsageError(f"the cluster {machines.name} has no GPUs", "add `gpus` to its nodes")
    models = tuple(dict.fromkeys(device.gpu for device in devices))
    reports = _reports(file, progress)
    made = [task for section in file.tasks for task in tasks_of(section, models, reports.get(_key(section)))]
    problem = Problem(devices=devices, tasks=tuple(made), risk=file.risk, most_together=file.most_together)
    return with_measured(problem, file), _smallest(file, reports, devices)


def objective_of(name: str) -> Objective:
    try:
        return Objective(name)
    except ValueError:
        raise UsageError(f"no objective is called {name}", f"choose one of {', '.join(Objective)}") from None


_Key = tuple[str, tuple[str, ...], int, str]


def _key(section: TaskSection) -> _Key | None:
    if section.program is None or section.speeds is not None:
        return None
    return section.program, tuple(section.arguments), section.gpus, section.shard


def _reports(file: TasksFile, progress: Progress) -> dict[_Key | None, Report | TonnageError]:
    """Each program once with the same arguments, on all GPUs of the catalogue: further ones cost next to nothing.

    One that cannot be followed does not stop the others.
    """
    keys = dict.fromkeys(key for section in file.tasks if (key := _key(section)) is not None)
    found: dict[_Key | None, Report | TonnageError] = {}
    for number, key in enumerate(keys):
        program, arguments, gpus, shard = key
        progress(f"following program {number + 1} of {len(keys)}: {program}")
        try:
            found[key] = estimate(program, arguments=arguments, counts=[gpus], shard=shard)
        except (CaptureError, ProgramFailed, NotFound) as error:
            found[key] = error
    return found


def _smallest(
    file: TasksFile, reports: Mapping[_Key | None, Report | TonnageError], devices: tuple[Device, ...]
) -> dict[str, str]:
    """The GPU with the least memory that holds a task, among all of the catalogue that the cluster does not have."""
    there = {device.gpu for device in devices}
    others = sorted((gpu for gpu in all_gpus() if gpu.name not in there), key=lambda gpu: gpu.usable_bytes)
    found: dict[str, str] = {}
    for section in file.tasks:
        report = reports.get(_key(section))
        holds = _fitting(report) if isinstance(report, Report) else _known_to_fit(section, file.risk, others)
        if (best := next((gpu.name for gpu in others if gpu.name in holds), None)) is not None:
            found |= dict.fromkeys(names_of(section), best)
    return found


def _fitting(report: Report) -> set[str]:
    return {each.gpu for each in report.estimates if each.fits}


def _known_to_fit(section: TaskSection, risk: float, gpus: Iterable[Gpu]) -> set[str]:
    """By the memory that is given: those with a speed, or if none of them is large enough, any."""
    if section.speeds is None or not isinstance(section.memory, int):
        return set()
    deviation = section.memory * section.memory_error
    needed = memory_needed(
        [Profile(step_seconds=1.0, memory_bytes=section.memory, memory_deviation_bytes=deviation)], risk
    )
    large = {gpu.name for gpu in gpus if gpu.usable_bytes >= needed}
    return large & section.speeds.keys() or large

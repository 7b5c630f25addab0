"""What tasks of a plan really took goes into the benchmark database, and the next plan goes by it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from tonnage.allocate.problem import Problem, Profile, Task
from tonnage.allocate.tasks_file import names_of
from tonnage.allocate.tasks_models import TaskSection, TasksFile
from tonnage.engines.base import StreamsLogs
from tonnage.engines.bundle import bundle
from tonnage.errors import MissingDependency, NotFound, TonnageError
from tonnage.planning.running import Followed, Run
from tonnage.profile.measurement import measurement_of_run
from tonnage.profile.recorded import Recorded, find_record
from tonnage.store.rows import Measurement, Status

CAMPAIGN = "plans"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A task's step, predicted by the plan and measured."""

    task: str
    gpu: str
    predicted_step_seconds: float
    measured_step_seconds: float

    @property
    def error(self) -> float:
        return self.predicted_step_seconds / self.measured_step_seconds - 1.0


def key_of(section: TaskSection) -> str:
    """Runs with the same key can be compared: the program's files, its arguments, its GPUs. "" without a program."""
    if section.program is None:
        return ""
    try:
        digest = bundle(Path(section.program)).digest
    except TonnageError:
        return ""
    text = "\0".join([digest, *section.arguments, str(section.gpus), section.shard])
    return f"sha256:{sha256(text.encode()).hexdigest()}"


def keep_measurements(run: Run, problem: Problem, file: TasksFile, location: str | Path | None = None) -> list[Told]:
    """Of the tasks that are done and timed themselves; each once, however often it is asked for."""
    from tonnage.store.database import open_database

    sections = {name: section for section in file.tasks for name in names_of(section)}
    tasks = {task.name: task for task in problem.tasks}
    told: list[Told] = []
    with open_database(location) as database:
        for each, record in _records(run):
            indicators = record.indicators
            measured_at = datetime.fromtimestamp(each.status.ended_at or 0.0, UTC)
            row = measurement_of_run(
                indicators, measured_at, campaign=CAMPAIGN, key=key_of(sections[each.task]),
                structure={"task": each.task, "arguments": " ".join(sections[each.task].arguments)},
            )  # fmt: skip
            database.add(replace(record.machine, device=indicators.device, gpu=indicators.gpu), row)
            gpu = each.order.job.placements[0].gpu
            told.append(
                Told(
                    task=each.task,
                    gpu=gpu,
                    predicted_step_seconds=tasks[each.task].profiles[gpu].step_seconds,
                    measured_step_seconds=indicators.step_seconds,
                )
            )
    return told


def _records(run: Run) -> Iterator[tuple[Followed, Recorded]]:
    for each in run.tasks.values():
        if each.status.state != "succeeded" or each.deployment is None or not isinstance(run.engine, StreamsLogs):
            continue
        source = each.order.job.source
        if source is None:
            continue
        record = find_record(run.engine.logs(each.deployment.name_there), source.entry, source.digest)
        if record is not None:
            yield each, record


def with_measured(problem: Problem, file: TasksFile, location: str | Path | None = None) -> Problem:
    """Profiles by the last measurement of the same program with the same arguments, where there is one."""
    found = _measured(file, location)
    sections = {name: section for section in file.tasks for name in names_of(section)}
    keys = {section.name: key_of(section) for section in file.tasks} if found else {}
    tasks = tuple(
        _by_measurement(
            task, {gpu: row for (key, gpu), row in found.items() if key and key == keys[sections[task.name].name]}
        )
        for task in problem.tasks
    )
    return replace(problem, tasks=tasks) if found else problem


def _measured(file: TasksFile, location: str | Path | None) -> dict[tuple[str, str], Measurement]:
    """By key and model; nothing where nothing was ever measured here."""
    if all(section.program is None for section in file.tasks):
        return {}
    try:
        from tonnage.store.database import open_database

        with open_database(location, create=False) as database:
            rows = database.measurements(campaign=CAMPAIGN, status=Status.OK)
            return {(row.key, environment.gpu): row for environment, row in rows if environment.gpu}
    except (NotFound, MissingDependency, ModuleNotFoundError):
        return {}


def _by_measurement(task: Task, rows: Mapping[str, Measurement]) -> Task:
    if not rows:
        return task
    profiles = {gpu: _measured_profile(profile, rows.get(gpu)) for gpu, profile in task.profiles.items()}
    return replace(task, profiles=profiles)


def _measured_profile(profile: Profile, row: Measurement | None) -> Profile:
    if row is None or row.step_seconds is None:
        return profile
    return replace(profile, step_seconds=row.step_seconds.mean, basis="measured")

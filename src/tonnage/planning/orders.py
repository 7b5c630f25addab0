"""From a plan to jobs: each where the plan puts it, after those that have its GPUs before."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from tonnage.allocate.plan import Assignment, Plan
from tonnage.allocate.problem import Problem
from tonnage.allocate.tasks_file import names_of
from tonnage.allocate.tasks_models import TaskSection, TasksFile
from tonnage.engines.base import Job, Placement, Resources
from tonnage.engines.jobs import Hardware, job_of
from tonnage.engines.names import is_name, name_like
from tonnage.errors import UsageError

# By these a deployment is known again as that of a task, how often it was begun, and where.
RUN_LABEL, TASK_LABEL = "tonnage.run", "tonnage.task"
ATTEMPT_LABEL, PLACES_LABEL = "tonnage.attempt", "tonnage.places"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A job that is not yet submitted, and the tasks that must be over before."""

    task: str
    job: Job
    waits_for: tuple[str, ...]

    @property
    def attempt(self) -> int:
        return attempt_of(self.job.labels)

    @property
    def places(self) -> tuple[str, ...]:
        return places_of(self.job.labels)


def attempt_of(labels: Mapping[str, str]) -> int:
    return int(labels.get(ATTEMPT_LABEL, 0))


def places_of(labels: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(filter(None, labels.get(PLACES_LABEL, "").split(",")))


def run_name(section: TaskSection) -> str:
    """The same for the same program with the same arguments in the same folder, so that submitting again runs it once."""
    what = section.model_dump_json(include={"program", "arguments", "command", "gpus", "shard"})
    return f"run-{sha256(f'{Path.cwd()} {what}'.encode()).hexdigest()[:8]}"


def orders_of(
    problem: Problem,
    plan: Plan,
    file: TasksFile,
    run: str = "",
    *,
    image: str = "",
    attempts: Mapping[str, int] | None = None,
) -> list[Order]:
    """In the order of their starts, of the tasks in `attempts` if it is given. Without a run each task has its own name."""
    sections = {name: section for section in file.tasks for name in names_of(section)}
    before = _before(problem, plan)
    numbers = {each.task: 0 for each in plan.assignments} if attempts is None else attempts
    return [
        Order(
            task=each.task,
            job=_job(problem, each, sections[each.task], run, image, numbers[each.task]),
            waits_for=before[each.task],
        )
        for each in sorted(plan.assignments, key=lambda each: each.start_seconds)
        if each.task in numbers
    ]


def again(order: Order) -> Order:
    """The same once more, under another name."""
    run, attempt = order.job.labels[RUN_LABEL], order.attempt + 1
    labels = {**order.job.labels, ATTEMPT_LABEL: str(attempt)}
    return replace(order, job=replace(order.job, name=job_name(run, order.task, attempt), labels=labels))


def _before(problem: Problem, plan: Plan) -> dict[str, tuple[str, ...]]:
    """Of each task: those for whom it waits itself, and the last ones that have its GPUs before it starts."""
    by_place: dict[str, list[Assignment]] = defaultdict(list)
    for each in plan.assignments:
        for place in each.gpus:
            by_place[place].append(each)
    tasks = {task.name: task for task in problem.tasks}
    found: dict[str, tuple[str, ...]] = {}
    for each in plan.assignments:
        waits = dict.fromkeys(tasks[each.task].after)
        for place in each.gpus:
            earlier = [other for other in by_place[place] if other.end_seconds <= each.start_seconds + 1e-6]
            last = max((other.start_seconds for other in earlier), default=0.0)
            # Those before the last ones have ended when these begin.
            waits |= dict.fromkeys(other.task for other in earlier if other.end_seconds > last + 1e-6)
        found[each.task] = tuple(waits)
    return found


def _job(problem: Problem, each: Assignment, section: TaskSection, run: str, image: str, attempt: int) -> Job:
    run = run or run_name(section)
    placements = _placements(problem, each)
    hardware = Hardware(
        gpu=placements[0].gpu,
        gpu_count=len(placements[0].gpu_indices),
        cpu_cores=section.cpus,
        memory_bytes=section.main_memory,
    )
    job = _command_job(section, hardware, image)
    return replace(
        job,
        name=job_name(run, each.task, attempt),
        resources=replace(job.resources, gpu_indices=placements[0].gpu_indices, shares_gpus=placements[0].share < 1.0),
        placements=placements,
        requeue=section.requeue,
        labels=_labels(run, each, attempt),
    )


def _labels(run: str, each: Assignment, attempt: int) -> dict[str, str]:
    places = ",".join(each.gpus)
    return {RUN_LABEL: run, TASK_LABEL: each.task, ATTEMPT_LABEL: str(attempt), PLACES_LABEL: places}


def job_name(run: str, task: str, attempt: int = 0) -> str:
    """A name that every engine takes, and no other task of the run has, nor another attempt."""
    name = f"{run}-{attempt}-{task}" if attempt else f"{run}-{task}"
    if is_name(name):
        return name
    return f"{name_like(name)}-{sha256(task.encode()).hexdigest()[:6]}"


def _command_job(section: TaskSection, hardware: Hardware, image: str) -> Job:
    if section.command:
        resources = Resources(
            cpu_cores=hardware.cpu_cores, memory_bytes=hardware.memory_bytes,
            gpu=hardware.gpu, gpu_count=hardware.gpu_count,
        )  # fmt: skip
        workdir = "" if image else str(Path.cwd())  # the image has its own
        return Job(name="job", command=tuple(section.command), image=image, resources=resources, workdir=workdir)
    if section.program is None:
        raise UsageError(
            f"{section.name} has speeds and nothing that could be run", "give it a `program` or a `command`"
        )
    return job_of(hardware, Path(section.program), section.arguments, image=image, name="job", record=True)


def _placements(problem: Problem, each: Assignment) -> tuple[Placement, ...]:
    """One a node, with the indices of its GPUs there."""
    models = {device.place: device.gpu for device in problem.devices}
    by_node: dict[str, list[str]] = defaultdict(list)
    for place in each.gpus:
        by_node[place.rpartition("/")[0]].append(place)
    return tuple(
        Placement(
            node=node,
            gpu=models[places[0]],
            gpu_indices=tuple(int(place.rpartition("/gpu")[2]) for place in places),
            share=1.0 / (1 + len(each.beside)),
        )
        for node, places in by_node.items()
    )


def describe(orders: Sequence[Order], texts: Mapping[str, str]) -> str:
    """What would be submitted, for people."""
    parts = []
    for order in orders:
        waits = f", after {', '.join(order.waits_for)}" if order.waits_for else ""
        where = " ".join(f"{p.node}/{','.join(map(str, p.gpu_indices))}" for p in order.job.placements)
        heading = f"# {order.task}: {shlex.join(order.job.command)[:80]} on {where}{waits}"
        parts.append(f"{heading}\n{texts[order.task].rstrip()}\n")
    return "\n".join(parts)

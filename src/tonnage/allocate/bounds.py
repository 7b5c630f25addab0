"""Below what no plan can come, whatever its solver."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tonnage.allocate.intervals import Intervals, can_be_bounded
from tonnage.allocate.linear import Shares, most_even, shortest_seconds
from tonnage.allocate.objectives import Objective, joules, lateness
from tonnage.allocate.problem import Problem, Task
from tonnage.allocate.queue import Queue, new_queue
from tonnage.allocate.sharing import joint_speeds
from tonnage.allocate.speeds import Floats, SpeedTable, TaskClass

MOST_IN_PROGRAM = 400  # tasks; more of them are bounded by the sums alone


def lower_bound(problem: Problem, objective: Objective, tasks: Sequence[Task]) -> float:
    """Of the objective, for these tasks of the problem, all of which can run."""
    if not tasks:
        return 0.0
    return _BOUNDS[objective](problem, list(tasks))


def earliest_ends(tasks: Sequence[Task]) -> dict[str, float]:
    """Of each task if it had the GPUs that suit it whenever it wants them, and so had all for whom it waits."""
    by_name = {task.name: task for task in tasks}
    ends: dict[str, float] = {}

    def end(task: Task) -> float:
        if task.name not in ends:
            waits = [end(by_name[name]) for name in task.after if name in by_name]
            ends[task.name] = max([task.release_seconds, *waits]) + task.least_seconds
        return ends[task.name]

    for task in tasks:
        end(task)
    return ends


def makespan_program(problem: Problem, tasks: Sequence[Task]) -> Shares:
    """All tasks at the speeds at which they would end together, in parts of the time on each model and in pairs."""
    return most_even(as_queue(problem, tasks), 1.0 / np.array([task.steps for task in tasks]))


def as_queue(problem: Problem, tasks: Sequence[Task]) -> Queue:
    """Each task a class of its own."""
    models = problem.models
    alone = np.array([[1.0 / t.profiles[g].step_seconds if g in t.profiles else 0.0 for g in models] for t in tasks])
    table = SpeedTable(
        types=models,
        classes=tuple(TaskClass(name=task.name, gpus=task.gpus) for task in tasks),
        alone=alone,
        paired=_paired(problem, tasks, alone),
    )
    capacity = np.array([len(problem.devices_of(gpu)) for gpu in models])
    return new_queue(table, capacity, np.arange(len(tasks)), np.array([task.steps for task in tasks], dtype=float))


def _paired(problem: Problem, tasks: Sequence[Task], alone: Floats) -> Floats:
    """Speeds of pairs; more than two together are bounded in another way."""
    paired = np.zeros((len(problem.models), len(tasks), len(tasks)))
    if problem.most_together < 2:
        return paired
    sharing = [number for number, task in enumerate(tasks) if task.may_share and task.gpus == 1]
    for kind, gpu in enumerate(problem.models):
        able = [number for number in sharing if gpu in tasks[number].profiles]
        for a in able:
            for b in able:
                if a != b:
                    both = [tasks[a].profiles[gpu], tasks[b].profiles[gpu]]
                    paired[kind, a, b] = alone[a, kind] * joint_speeds(problem, both)[0]
    return paired


def gpu_seconds(problem: Problem, task: Task, gpu: str) -> float:
    """Of a GPU's time that the task takes at least, even if it shares it with the best of partners.

    Of tasks that keep it busy for parts b of their time, the sum of b times speed is at most one; nor are there more of
    them than `most_together`, each at most as fast as alone.
    """
    if not task.may_share or task.gpus > 1 or problem.most_together < 2:
        return task.seconds_on(gpu)
    profile = task.profiles[gpu]
    part = max(profile.busy, profile.bandwidth, 1.0 / problem.most_together)
    return task.seconds_on(gpu) * min(1.0, part)


def least_gpu_seconds(problem: Problem, task: Task) -> float:
    return min(gpu_seconds(problem, task, gpu) for gpu in task.profiles)


def _makespan(problem: Problem, tasks: list[Task]) -> float:
    longest = _longest(tasks)
    if len(tasks) > MOST_IN_PROGRAM or problem.most_together > 2:
        return max(longest, _area_seconds(problem, tasks))
    return max(longest, shortest_seconds(as_queue(problem, tasks)))


def _area_seconds(problem: Problem, tasks: list[Task]) -> float:
    """All GPU seconds over all GPUs, each task where it takes least."""
    return sum(least_gpu_seconds(problem, task) * task.gpus for task in tasks) / len(problem.devices)


def _completion(problem: Problem, tasks: list[Task]) -> float:
    if not can_be_bounded(problem, tasks):
        return _completion_on_one(problem, tasks)
    weight = np.array([task.weight for task in tasks])
    released = float(sum(task.weight * task.release_seconds for task in tasks))
    program = _intervals(problem, tasks)
    return max((program.least_total(weight) - released) / float(weight.sum()), _completion_on_one(problem, tasks))


def _intervals(problem: Problem, tasks: list[Task]) -> Intervals:
    """With a horizon in which good plans have done most."""
    released = max(task.release_seconds for task in tasks)
    return Intervals(problem, tasks, gpu_seconds, released + 2.0 * max(_area_seconds(problem, tasks), _longest(tasks)))


def _longest(tasks: Sequence[Task]) -> float:
    return max(earliest_ends(tasks).values())


def _completion_on_one(problem: Problem, tasks: list[Task]) -> float:
    """Of one machine as fast as all together, shortest first by weight; and of no waiting at all."""
    total = sum(task.weight for task in tasks)
    ends = earliest_ends(tasks)
    alone = sum(task.weight * (ends[task.name] - task.release_seconds) for task in tasks)
    work = {task.name: least_gpu_seconds(problem, task) * task.gpus / len(problem.devices) for task in tasks}
    now = waited = 0.0
    for task in sorted(tasks, key=lambda task: work[task.name] / task.weight):
        now += work[task.name]
        # Half of its own time: on one machine the middle of its work counts (Eastman, Even and Isaacs, 1964).
        waited += task.weight * (now - work[task.name] / 2 + task.least_seconds / 2 - task.release_seconds)
    return max(alone, waited) / total


def _deadline(problem: Problem, tasks: list[Task]) -> float:
    ends = earliest_ends(tasks)
    alone = sum(lateness(task, ends[task.name]) for task in tasks)
    due = np.array([np.inf if task.deadline_seconds is None else task.deadline_seconds for task in tasks])
    if not can_be_bounded(problem, tasks) or np.isinf(due).all():
        return alone
    weight = np.where(np.isinf(due), 0.0, [task.weight for task in tasks])
    due = np.where(np.isinf(due), 0.0, due)
    return max(alone, _intervals(problem, tasks).least_beyond(due, weight, sum_of_all=True))


def _fairness(problem: Problem, tasks: list[Task]) -> float:
    """If nobody is slowed down more than so much, all that are no longer than a task end within that of its own time."""
    ends = earliest_ends(tasks)
    worst = max((ends[task.name] - task.release_seconds) / task.least_seconds for task in tasks)
    if any(task.release_seconds for task in tasks):
        return worst
    work = 0.0
    for task in sorted(tasks, key=lambda task: task.least_seconds):
        work += least_gpu_seconds(problem, task) * task.gpus / len(problem.devices)
        worst = max(worst, work / task.least_seconds)
    if not can_be_bounded(problem, tasks):
        return worst
    own = np.array([1.0 / task.least_seconds for task in tasks])
    return max(worst, _intervals(problem, tasks).least_beyond(np.zeros(len(tasks)), own, sum_of_all=False))


def _energy(problem: Problem, tasks: list[Task]) -> float:  # noqa: ARG001
    return sum(min(joules(task, gpu) for gpu in task.profiles) for task in tasks)


def _cost(problem: Problem, tasks: list[Task]) -> float:
    cheapest = {gpu: min(device.price_usd_hour for device in problem.devices_of(gpu)) for gpu in problem.models}
    each = [
        min(gpu_seconds(problem, task, gpu) / 3600 * cheapest[gpu] * task.gpus for gpu in task.profiles)
        for task in tasks
    ]
    return sum(each)


_BOUNDS: dict[Objective, Callable[[Problem, list[Task]], float]] = {
    Objective.MAKESPAN: _makespan, Objective.COMPLETION: _completion, Objective.DEADLINE: _deadline,
    Objective.FAIRNESS: _fairness, Objective.ENERGY: _energy, Objective.COST: _cost,
}  # fmt: skip

"""Tasks as a trace of jobs: what the online scheduler makes of them, which knows only who is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tonnage.allocate.bounds import as_queue
from tonnage.allocate.feasible import split_feasible
from tonnage.allocate.objectives import Objective
from tonnage.allocate.plan import Unplaced
from tonnage.allocate.problem import Problem, Task
from tonnage.allocate.simulate.jobs import Jobs
from tonnage.allocate.simulate.scenario import Scenario, simulate
from tonnage.allocate.simulate.summary import Summary
from tonnage.errors import DoesNotFit, UsageError

_POLICIES = {
    Objective.MAKESPAN: "makespan",
    Objective.COMPLETION: "completion",
    Objective.FAIRNESS: "fairness",
    Objective.FINISH_TIME: "fairness",
}


def play_arrivals(
    problem: Problem,
    objective: Objective,
    *,
    clock: Callable[[], float] = lambda: 0.0,
    progress: Callable[[int], None] = lambda done: None,
) -> tuple[Summary, list[Unplaced]]:
    """Tasks arrive when they are released, may be stopped, and start again at the cost of the longest start."""
    if objective not in _POLICIES:
        raise UsageError(f"no online policy is for {objective.value}", f"choose one of {', '.join(_POLICIES)}")
    possible, unplaced = split_feasible(problem, {})
    if not possible.tasks:
        raise DoesNotFit("no task can run on this cluster", unplaced[0].reason if unplaced else "")
    tasks = sorted(possible.tasks, key=lambda task: task.release_seconds)
    queue = as_queue(possible, tasks)
    jobs = Jobs(
        classes=queue.classes,
        steps=queue.left_steps,
        arrival_seconds=np.array([task.release_seconds for task in tasks]),
        weights=np.array([task.weight for task in tasks]),
    )
    counts = {gpu: len(possible.devices_of(gpu)) for gpu in possible.models}
    scenario = Scenario(policy=_POLICIES[objective], restart_seconds=max(task.start_seconds for task in tasks))
    return simulate(jobs, queue.table, counts, scenario, clock=clock, progress=progress), unplaced


def not_played(problem: Problem) -> Iterator[str]:
    """What tasks ask for that the online scheduler does not know."""
    asked: dict[str, Callable[[Task], object]] = {
        "after": lambda task: task.after,
        "pin": lambda task: task.pinned,
        "nodes": lambda task: task.nodes,
        "near": lambda task: task.near,
        "deadline": lambda task: task.deadline_seconds,
    }
    return (name for name, has in asked.items() if any(has(task) for task in problem.tasks))

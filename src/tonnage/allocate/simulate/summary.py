"""What came out of a simulation, in figures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tonnage.allocate.linear import ending_together
from tonnage.allocate.queue import new_queue
from tonnage.allocate.simulate.jobs import Jobs
from tonnage.allocate.simulate.simulator import Outcome
from tonnage.allocate.speeds import Ints, SpeedTable

_MOST_BOUNDED = 1000  # jobs: beyond that the linear program of the bound takes too long


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Seconds, unless the name says otherwise; completion is counted from a job's arrival."""

    policy: str
    jobs: int
    mean_completion_seconds: float
    weighted_mean_completion_seconds: float
    median_completion_seconds: float
    p99_completion_seconds: float
    makespan_seconds: float  # from the first arrival
    makespan_bound_seconds: float | None
    preemptions: int
    decisions: int
    solver_cpu_seconds: float
    utilisation: dict[str, float]  # of each type of GPU, until the last job was done
    mean_slowdown: float  # completion beside the time alone on the GPUs that suit the job
    p99_slowdown: float
    mean_finish_time_fairness: float  # completion beside that with an equal part of the GPUs
    worst_finish_time_fairness: float


def summarise(policy: str, outcome: Outcome, jobs: Jobs, table: SpeedTable, capacity: Ints) -> Summary:
    completion = outcome.completed_seconds - jobs.arrival_seconds
    makespan = float(outcome.completed_seconds.max() - jobs.arrival_seconds[0])
    slowdown = completion / (jobs.steps / table.best[jobs.classes])
    fairness = slowdown / np.maximum(outcome.contention, 1.0)
    return Summary(
        policy=policy,
        jobs=jobs.size,
        mean_completion_seconds=float(completion.mean()),
        weighted_mean_completion_seconds=float(np.average(completion, weights=jobs.weights)),
        median_completion_seconds=float(np.median(completion)),
        p99_completion_seconds=float(np.percentile(completion, 99)),
        makespan_seconds=makespan,
        makespan_bound_seconds=makespan_bound_seconds(jobs, table, capacity),
        preemptions=outcome.preemptions,
        decisions=outcome.decisions,
        solver_cpu_seconds=outcome.solver_cpu_seconds,
        utilisation={
            name: float(busy / count / makespan)
            for name, busy, count in zip(table.types, outcome.busy_gpu_seconds, capacity, strict=True)
        },
        mean_slowdown=float(slowdown.mean()),
        p99_slowdown=float(np.percentile(slowdown, 99)),
        mean_finish_time_fairness=float(fairness.mean()),
        worst_finish_time_fairness=float(fairness.max()),
    )


def makespan_bound_seconds(jobs: Jobs, table: SpeedTable, capacity: Ints) -> float | None:
    """No schedule is shorter, from the first arrival to the last end: neither for all the work nor for one job.

    Of long traces, which are not bounded, None.
    """
    if jobs.size > _MOST_BOUNDED:
        return None
    least = jobs.steps / table.best[jobs.classes]
    after = float((jobs.arrival_seconds - jobs.arrival_seconds[0] + least).max())
    queue = new_queue(table, capacity, jobs.classes, jobs.steps)
    return max(after, 1.0 / ending_together(queue).value)

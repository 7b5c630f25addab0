"""Tasks played as they come."""

import pytest
from problems import devices, task

from tonnage.allocate.arrivals import not_played, play_arrivals
from tonnage.allocate.objectives import Objective
from tonnage.allocate.problem import Problem
from tonnage.errors import DoesNotFit, UsageError


def test_tasks_arrive_when_they_are_released() -> None:
    tasks = (task("late", 100.0, release_seconds=1000.0), task("early", 100.0))
    summary, unplaced = play_arrivals(Problem(devices=devices(small=1), tasks=tasks), Objective.COMPLETION)
    assert (summary.jobs, unplaced) == (2, [])
    assert summary.mean_completion_seconds == pytest.approx(100.0)
    assert summary.makespan_seconds == pytest.approx(1100.0)


def test_tasks_share_a_gpu_as_in_a_plan() -> None:
    both = tuple(task(name, 100.0, busy=0.4, memory_gib=6) for name in "ab")
    summary, _ = play_arrivals(Problem(devices=devices(small=1), tasks=both), Objective.MAKESPAN)
    assert summary.makespan_seconds == pytest.approx(100.0)


def test_who_fits_nowhere_is_listed_and_the_rest_is_played() -> None:
    tasks = (task("small", 100.0), task("huge", 100.0, memory_gib=500))
    summary, unplaced = play_arrivals(Problem(devices=devices(small=1), tasks=tasks), Objective.FAIRNESS)
    assert (summary.jobs, [each.task for each in unplaced]) == (1, ["huge"])
    with pytest.raises(DoesNotFit, match="no task can run"):
        play_arrivals(Problem(devices=devices(small=1), tasks=tasks[1:]), Objective.FAIRNESS)


def test_what_is_not_looked_at_is_named() -> None:
    tasks = (task("a", 100.0), task("b", 100.0, after=("a",), deadline_seconds=10.0))
    assert list(not_played(Problem(devices=devices(small=1), tasks=tasks))) == ["after", "deadline"]


def test_there_is_no_queue_for_the_least_cost() -> None:
    with pytest.raises(UsageError, match="no online policy is for cost"):
        play_arrivals(Problem(devices=devices(small=1), tasks=(task("a", 100.0),)), Objective.COST)

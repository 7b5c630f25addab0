"""Reasons and alternatives say what is so."""

from problems import GIB, devices, task

from tonnage.allocate.alternatives import explain
from tonnage.allocate.objectives import Objective
from tonnage.allocate.plan import Assignment, Plan
from tonnage.allocate.problem import Problem, Task
from tonnage.allocate.reasons import with_reasons


def at(name: str, place: str, start: float, end: float, *beside: str) -> Assignment:
    return Assignment(task=name, gpus=(place,), start_seconds=start, end_seconds=end, beside=beside)


def plan_of(*assignments: Assignment) -> Plan:
    return Plan(objective="makespan", value=0.0, bound=0.0, assignments=assignments)


def problem_of(*tasks: Task, **counts: int) -> Problem:
    return Problem(devices=devices(**counts), tasks=tasks)


def reasons(problem: Problem, *assignments: Assignment, objective: Objective = Objective.MAKESPAN) -> dict[str, str]:
    return {each.task: each.reason for each in with_reasons(problem, objective, plan_of(*assignments))}


def test_a_gpu_can_hold_it_alone_only_where_memory_is_what_lacks() -> None:
    problem = problem_of(task("wide", 10.0, memory_gib=60), task("known", {"large": 10.0}), small=1, middle=1, large=1)
    found = reasons(problem, at("wide", "large0/gpu0", 0, 10), at("known", "large0/gpu0", 10, 20))
    assert found["wide"] == "only large can hold it"
    assert found["known"] == "only large will do; waits 10 s for it"


def test_a_faster_gpu_is_said_to_be_late_only_if_it_is() -> None:
    one, two = task("one", 100.0), task("two", {"small": 90.0, "large": 60.0})
    problem = problem_of(one, two, small=1, large=1)
    assert reasons(problem, at("one", "large0/gpu0", 0, 100), at("two", "small0/gpu0", 0, 90))["two"] == (
        "90 s on small; done later, after 3 min, behind the tasks on large"
    )
    problem = problem_of(two, small=1, large=1)
    assert reasons(problem, at("two", "small0/gpu0", 0, 90))["two"] == "90 s on small will do; large would take 60 s"


def test_money_is_a_reason_only_for_the_gpu_that_needs_least() -> None:
    dear, cheap = {"small": 90.0, "large": 10.0}, {"small": 40.0, "large": 10.0}  # 0.5 and 3 dollars an hour
    problem = problem_of(task("dear", dear), task("cheap", cheap), small=2, large=1)
    found = reasons(
        problem, at("dear", "small0/gpu0", 0, 90), at("cheap", "small0/gpu1", 0, 40), objective=Objective.COST
    )
    assert found == {"dear": "90 s on small will do; large would take 10 s", "cheap": "needs least money on small"}


def test_the_memory_of_neighbours_counts_while_they_are_there() -> None:
    tasks = [task(name, 100.0, memory_gib=7, busy=0.2) for name in ("long", "first", "second")]
    found = reasons(
        problem_of(*tasks, small=1),
        at("long", "small0/gpu0", 0, 100, "first", "second"),
        at("first", "small0/gpu0", 0, 50, "long"),
        at("second", "small0/gpu0", 50, 100, "long"),
    )
    assert found["long"] == "all GPUs are small; beside first, second: together at most 14.0 GiB of 16.0 GiB"


def test_waiting_begins_when_a_task_could_have_started() -> None:
    problem = problem_of(
        task("one", 50.0), task("two", 10.0, release_seconds=30.0), task("three", 10.0, after=("two",)), small=1
    )
    found = reasons(
        problem, at("one", "small0/gpu0", 0, 50), at("two", "small0/gpu0", 50, 60), at("three", "small0/gpu0", 60, 70)
    )
    assert found["two"] == "all GPUs are small; waits 20 s for it"
    assert found["three"] == "all GPUs are small; after two"


def test_alternatives_start_behind_the_tasks_that_one_waits_for() -> None:
    problem = problem_of(
        task("one", 50.0), task("two", {"small": 10.0, "large": 5.0}, after=("one",)), small=1, large=1
    )
    plan = plan_of(at("one", "small0/gpu0", 0, 50), at("two", "small0/gpu0", 50, 60))
    small, large = explain(problem, plan, "two").alternatives
    assert (small.chosen, small.start_seconds, small.end_seconds) == (True, 50, 60)
    assert (large.chosen, large.start_seconds, large.end_seconds) == (False, 50, 55)


def test_a_model_is_not_called_too_small_where_a_pin_forbids_it() -> None:
    problem = problem_of(
        task("pinned", 10.0, pinned=("small0/gpu0",)), task("wide", 10.0, memory_gib=60), small=1, large=1
    )
    plan = plan_of(at("pinned", "small0/gpu0", 0, 10), at("wide", "large0/gpu0", 0, 10))
    assert explain(problem, plan, "pinned").alternatives[1].verdict == "it is pinned elsewhere"
    assert explain(problem, plan, "wide").alternatives[0].verdict == "its memory does not hold the task"


def test_an_alternative_carries_its_profile() -> None:
    problem = problem_of(task("one", {"small": 50.0}, memory_gib=2), small=1, large=1)
    small, large = (
        each.as_dict() for each in explain(problem, plan_of(at("one", "small0/gpu0", 0, 50)), "one").alternatives
    )
    assert (small["profile"]["memory_bytes"], small["profile"]["step_seconds"]) == (2 * GIB, 0.5)
    assert (large["profile"], large["verdict"]) == (None, "it cannot run there")

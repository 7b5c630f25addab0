"""Plans for tasks of every kind."""

from dataclasses import replace
from itertools import permutations, product

import pytest
from hypothesis import given, settings
from problems import devices, problems, task

from tonnage.allocate.bounds import Bounds
from tonnage.allocate.check import check, faults
from tonnage.allocate.feasible import split_feasible
from tonnage.allocate.objectives import Objective
from tonnage.allocate.plan import Plan
from tonnage.allocate.problem import Problem
from tonnage.allocate.solve import allocate_tasks
from tonnage.errors import UsageError


def solve(problem: Problem, objective: Objective = Objective.MAKESPAN, changes: int = 200) -> Plan:
    left = iter(range(changes))
    return allocate_tasks(problem, objective, keep_going=lambda: next(left, None) is not None)


@settings(max_examples=60, deadline=None)
@given(problem=problems())
def test_every_plan_can_be_carried_out_and_is_not_below_its_bound(problem: Problem) -> None:
    for objective in Objective:
        plan = solve(problem, objective, 10)
        assert list(faults(*as_judged(problem, plan))) == []
        assert plan.bound <= plan.value * (1 + 1e-9)
        assert len(plan.assignments) + len(plan.unplaced) == len(problem.tasks)
        assert all(each.reason for each in (*plan.assignments, *plan.unplaced))


def as_judged(problem: Problem, plan: Plan) -> tuple[Problem, Plan]:
    """Fairness counts only tasks that can run, and their own time is that on GPUs that can hold them."""
    if plan.objective not in ("fairness", "finish-time"):
        return problem, plan
    able, _ = split_feasible(problem, {})
    return able, replace(plan, unplaced=())


@settings(max_examples=60, deadline=None)
@given(problem=problems())
def test_bounds_are_below_every_order_and_choice_of_gpus(problem: Problem) -> None:
    """Brute force over orders and models, for single GPUs one after the other."""
    plain = [
        replace(each, gpus=1, may_share=False, after=(), near="", release_seconds=0.0) for each in problem.tasks[:4]
    ]
    small = replace(problem, tasks=tuple(plain), most_together=1)
    possible = [each for each in plain if solve_one(small, each.name)]
    if not possible:
        return
    small, _ = split_feasible(replace(small, tasks=tuple(possible)), {})
    best = least(small)
    for objective in (Objective.MAKESPAN, Objective.COMPLETION, Objective.DEADLINE, Objective.FAIRNESS):
        assert Bounds(small).lower(objective).value <= best[objective] * (1 + 1e-6) + 1e-6, objective
        assert solve(small, objective, 50).value >= best[objective] * (1 - 1e-6) - 1e-6, objective


def solve_one(problem: Problem, name: str) -> bool:
    return name not in {each.task for each in solve(problem, changes=0).unplaced}


def least(problem: Problem) -> dict[Objective, float]:
    """Of every order of the tasks on every choice of GPUs."""
    found = {objective: float("inf") for objective in Objective}
    choices = [
        [number for number, device in enumerate(problem.devices) if device.gpu in each.profiles]
        for each in problem.tasks
    ]
    for order in permutations(range(len(problem.tasks))):
        for chosen in product(*choices):
            free = [0.0] * len(problem.devices)
            ends = [0.0] * len(problem.tasks)
            for number in order:
                device = chosen[number]
                free[device] += problem.tasks[number].seconds_on(problem.devices[device].gpu)
                ends[number] = free[device]
            pairs = list(zip(problem.tasks, ends, strict=True))
            weight = sum(each.weight for each in problem.tasks)
            values = {
                Objective.MAKESPAN: max(ends),
                Objective.COMPLETION: sum(each.weight * end for each, end in pairs) / weight,
                Objective.DEADLINE: sum(
                    each.weight * max(0.0, end - each.deadline_seconds) for each, end in pairs if each.deadline_seconds
                ),
                Objective.FAIRNESS: max(end / each.least_seconds for each, end in pairs),
            }
            found |= {objective: min(found[objective], value) for objective, value in values.items()}
    return found


def test_a_task_goes_where_it_is_done_first() -> None:
    plan = solve(Problem(devices=devices(small=1, large=1), tasks=(task("a", {"small": 100, "large": 10}),)))
    assert plan.assignments[0].gpus == ("large0/gpu0",)
    assert (plan.value, plan.bound, plan.gap) == (10.0, 10.0, 0.0)


def test_two_tasks_share_a_gpu_where_both_are_faster_for_it() -> None:
    both = tuple(task(name, 100.0, busy=0.4, memory_gib=6) for name in "ab")
    plan = solve(Problem(devices=devices(small=1), tasks=both))
    assert plan.assignments[0].beside == ("b",)
    assert plan.value == pytest.approx(100.0)


@pytest.mark.parametrize("change", [{"busy": 1.0}, {"memory_gib": 9.0}, {"may_share": False}])
def test_two_tasks_do_not_share_a_gpu_that_is_too_busy_or_too_small(change: dict[str, object]) -> None:
    both = tuple(task(name, 100.0, **({"busy": 0.4, "memory_gib": 6.0} | change)) for name in "ab")  # type: ignore[arg-type]
    plan = solve(Problem(devices=devices(small=1), tasks=both))
    assert plan.value == pytest.approx(200.0)


def test_a_gang_gets_all_its_gpus_at_once_in_one_node() -> None:
    tasks = (task("alone", 50.0), task("gang", 100.0, gpus=2, near="node"))
    plan = solve(Problem(devices=devices(large=4), tasks=tasks))
    gang = next(each for each in plan.assignments if each.task == "gang")
    assert len({place.split("/")[0] for place in gang.gpus}) == 1


def test_a_task_that_fits_nowhere_is_listed_and_the_rest_is_planned() -> None:
    tasks = (task("huge", 10.0, memory_gib=100), task("fine", 10.0), task("later", 10.0, after=("huge",)))
    plan = allocate_tasks(Problem(devices=devices(small=1), tasks=tasks), smallest={"huge": "H200"})
    assert [each.task for each in plan.assignments] == ["fine"]
    assert plan.unplaced[0].reason == (
        "needs 100 GiB on a GPU, the largest that it can run on (small) has 16.0 GiB; H200 would do"
    )
    assert plan.unplaced[1].reason == "waits for huge, which cannot run"


def test_tasks_that_wait_for_each_other_are_refused() -> None:
    tasks = (task("a", 1.0, after=("b",)), task("b", 1.0, after=("a",)))
    with pytest.raises(UsageError, match="in a circle: "):
        solve(Problem(devices=devices(small=1), tasks=tasks))


def test_the_earliest_deadline_is_kept() -> None:
    tasks = (task("long", 100.0), task("urgent", 10.0, deadline_seconds=10.0))
    plan = solve(Problem(devices=devices(small=1), tasks=tasks), Objective.DEADLINE)
    assert (plan.value, plan.assignments[0].task) == (0.0, "urgent")


def test_money_is_saved_on_the_cheaper_gpu() -> None:
    tasks = (task("a", {"small": 100, "large": 50}),)
    plan = solve(Problem(devices=devices(small=1, large=1), tasks=tasks), Objective.COST)
    assert plan.assignments[0].gpus == ("small0/gpu0",)
    assert plan.value == pytest.approx(100 / 3600 * 0.5)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"gpus": ("small0/gpu1",)}, "no GPU small0/gpu1"),
        ({"end_seconds": 50.0}, "of work are done"),
        ({"start_seconds": -10.0}, "before it is there"),
        ({"task": "b"}, "more than once"),
        ({"task": "c"}, "there is no task c"),
    ],
)
def test_the_checker_finds_what_is_wrong(change: dict[str, object], fault: str) -> None:
    problem = Problem(devices=devices(small=1), tasks=(task("a", 100.0), task("b", 100.0)))
    plan = solve(problem)
    first, second = plan.assignments
    forged = replace(plan, assignments=(replace(first, **change), second))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=fault):
        check(problem, forged)


def test_the_checker_sees_two_tasks_on_one_gpu_that_do_not_share() -> None:
    problem = Problem(devices=devices(small=1), tasks=(task("a", 100.0), task("b", 100.0, may_share=False)))
    plan = solve(problem)
    overlapping = tuple(replace(each, start_seconds=0.0, end_seconds=200 / 0.92) for each in plan.assignments)
    with pytest.raises(ValueError, match="does not share"):
        check(problem, replace(plan, assignments=overlapping))

"""What no plan can be below, and what one more GPU would take off it."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import devices, problems, task

from tonnage.allocate.bounds import Bounds
from tonnage.allocate.feasible import split_feasible
from tonnage.allocate.objectives import Objective
from tonnage.allocate.problem import Problem
from tonnage.allocate.solve import allocate_tasks


def test_tasks_that_fill_a_gpu_together_are_charged_its_time_once() -> None:
    """Three tenths and seven tenths of a GPU: side by side at full speed, so that both kinds together take its time."""
    small = [task(f"small-{number}", 100.0, busy=0.3) for number in range(4)]
    large = [task(f"large-{number}", 100.0, busy=0.7) for number in range(4)]
    problem = Problem(devices=devices(small=1), tasks=(*small, *large))
    for objective in Objective:
        plan = allocate_tasks(problem, objective)
        assert plan.bound <= plan.value * (1 + 1e-9), objective
    assert allocate_tasks(problem).value == pytest.approx(400.0)
    assert Bounds(problem).lower(Objective.MAKESPAN).value == pytest.approx(400.0)


@pytest.mark.parametrize("most_together", [1, 2, 3])
def test_nobody_is_charged_more_than_its_own_time(most_together: int) -> None:
    tasks = tuple(task(f"t{n}", 100.0, busy=0.2 + 0.1 * n, memory_gib=4.0) for n in range(8))
    areas = Bounds(Problem(devices=devices(middle=2), tasks=tasks, most_together=most_together)).areas
    assert all(0.0 <= areas.seconds(each, "middle") <= 100.0 * (1 + 1e-9) for each in tasks)
    assert sum(areas.seconds(each, "middle") for each in tasks) > 0.0


def test_tasks_that_no_other_fits_beside_are_charged_all_of_it() -> None:
    tasks = tuple(task(f"t{n}", {"small": 100.0}, busy=0.2, memory_gib=14.0) for n in range(3))
    areas = Bounds(Problem(devices=devices(small=1), tasks=tasks)).areas
    assert areas.least_seconds(tasks[0]) == pytest.approx(100.0)


@settings(deadline=None, max_examples=25)
@given(problem=problems(), objective=st.sampled_from([Objective.MAKESPAN, Objective.COMPLETION, Objective.FAIRNESS]))
def test_one_more_gpu_takes_no_more_off_the_bound_than_its_price(problem: Problem, objective: Objective) -> None:
    able, _ = split_feasible(problem, {})
    if not able.tasks:
        return
    bound = Bounds(able).lower(objective)
    for model, price in zip(able.models, bound.prices, strict=True):
        more = replace(able, devices=(*able.devices, replace(able.devices_of(model)[0], place="more/gpu0")))
        lowered = bound.value - Bounds(more).lower(objective).value
        assert lowered <= price + 1e-6 * bound.value, model


def test_a_gpu_of_the_model_that_all_wait_for_brings_most() -> None:
    tasks = tuple(task(f"t{n}", {"small": 1000.0, "large": 100.0}) for n in range(20))
    plan = allocate_tasks(Problem(devices=devices(small=2, large=2), tasks=tasks))
    assert plan.one_more["large"] > 5 * plan.one_more["small"] > 0


def test_time_before_the_first_step_counts() -> None:
    tasks = tuple(task(f"t{n}", 100.0, start_seconds=50.0) for n in range(4))
    plan = allocate_tasks(Problem(devices=devices(small=2), tasks=tasks))
    assert (plan.value, plan.bound) == (pytest.approx(300.0), pytest.approx(300.0))


def test_finish_times_are_fair_beside_an_equal_part_of_all_gpus() -> None:
    tasks = (task("short", 10.0), task("long", 1000.0))
    plan = allocate_tasks(Problem(devices=devices(small=1), tasks=tasks), Objective.FINISH_TIME)
    assert plan.value == pytest.approx(1010.0 / 2000.0)  # each alone on half a GPU: 20 and 2,000 seconds

"""The page of a plan: what people read on it."""

import re
from dataclasses import replace

import pytest
from problems import devices, task

from tonnage.allocate.page import render_page
from tonnage.allocate.plan import Assignment, Plan
from tonnage.allocate.problem import Problem


def page(seconds: float, bound: float) -> str:
    problem = Problem(devices=devices(small=1), tasks=(task("one", seconds),))
    there = Assignment(task="one", gpus=("small0/gpu0",), start_seconds=0.0, end_seconds=seconds)
    return render_page(problem, Plan(objective="makespan", value=seconds, bound=bound, assignments=(there,)))


@pytest.mark.parametrize(
    ("seconds", "labels"),
    [
        (4500.0, ["0", "10 min", "20 min", "30 min", "40 min", "50 min", "60 min", "75 min"]),
        (0.5, ["0", "500 ms"]),
        (86400.0 * 3, ["0", "12 h 00 min", "24 h 00 min", "36 h 00 min", "2.0 days", "2.5 days", "3.0 days"]),
    ],
)
def test_times_below_the_chart_are_round(seconds: float, labels: list[str]) -> None:
    assert re.findall(r'<text class="tick"[^>]*>([^<]*)<', page(seconds, seconds)) == labels


def test_a_long_place_is_cut_where_gpus_do_not_differ() -> None:
    place = "a-node-with-a-very-long-name-in-the-third-room/gpu7"
    device = replace(devices(small=1)[0], place=place)
    there = Assignment(task="one", gpus=(place,), start_seconds=0.0, end_seconds=60.0)
    plan = Plan(objective="makespan", value=60.0, bound=60.0, assignments=(there,))
    text = render_page(Problem(devices=(device,), tasks=(task("one", 60.0),)), plan)
    assert f"<title>{place}, small</title>…{place[-26:]}<" in text


def test_bars_too_thin_for_letters_have_none() -> None:
    names = ("one", "two", "three", "four")
    problem = Problem(devices=devices(small=1), tasks=tuple(task(name, 60.0) for name in names), most_together=4)
    assignments = tuple(
        Assignment(
            task=name, gpus=("small0/gpu0",), start_seconds=0.0, end_seconds=60.0, beside=tuple({*names} - {name})
        )
        for name in names
    )
    plan = Plan(objective="makespan", value=60.0, bound=60.0, assignments=assignments)
    assert '<text class="in"' not in render_page(problem, plan)
    assert '<text class="in"' in page(60.0, 60.0)


def test_a_plan_at_its_bound_is_said_to_be_best() -> None:
    assert "No plan is better." in page(60.0, 60.0)
    assert "No plan is below 50 s; this one is 20.0% above." in page(60.0, 50.0)

"""A plan on the terminal: its value and bound, a Gantt chart of the GPUs, a line for each task."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tonnage.allocate.objectives import Objective, words_for
from tonnage.allocate.reasons import what_more_would_bring
from tonnage.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from tonnage.allocate.alternatives import Why
    from tonnage.allocate.plan import Assignment, Plan
    from tonnage.allocate.problem import Problem

_COLOURS = ("blue", "green", "magenta", "cyan", "yellow", "red")
_MOST_GPUS, _MOST_TASKS, _CHART = 32, 60, 80


def print_plan(problem: Problem, plan: Plan) -> None:
    console = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 160)
    console.print(_summary(problem, plan))
    if plan.assignments:
        console.print(_chart(problem, plan))
        console.print(_table(plan))
    more = len(plan.assignments) - _MOST_TASKS
    if more > 0:
        console.print(f"and {more} more tasks; --json lists all, --html shows them")
    if more_gpus := what_more_would_bring(plan):
        console.print(more_gpus)
    for each in plan.unplaced:
        print(f"not placed: {each.task}: {each.reason}", file=sys.stderr)


def _summary(problem: Problem, plan: Plan) -> Text:
    objective = Objective(plan.objective)
    text = Text()
    text.append(f"{_count(len(plan.assignments), 'task')} on {_count(len(problem.devices), 'GPU')}: ")
    text.append(f"{objective.value} {words_for(objective, plan.value)}", style="bold")
    if plan.bound > 0:
        text.append(f", no plan is below {words_for(objective, plan.bound)} (gap {plan.gap:.1%})")
    if objective is not Objective.MAKESPAN:
        text.append(f"; all done after {format_seconds(plan.makespan_seconds)}")
    text.append(f"; found in {format_seconds(plan.solver_seconds)}")
    return text


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _chart(problem: Problem, plan: Plan) -> Table:
    """A row a GPU; a cell is coloured while a task is there, and has another sign while several are."""
    table = Table(box=None, pad_edge=False, show_header=False)
    colours = {each.task: _COLOURS[number % len(_COLOURS)] for number, each in enumerate(plan.assignments)}
    by_place: dict[str, list[Assignment]] = {device.place: [] for device in problem.devices}
    for each in plan.assignments:
        for place in each.gpus:
            by_place[place].append(each)
    shown = [device for device in problem.devices if by_place[device.place]][:_MOST_GPUS]
    for device in shown:
        table.add_row(device.place, device.gpu, _bar(by_place[device.place], plan.makespan_seconds, colours))
    table.add_row("", "", f"0{format_seconds(plan.makespan_seconds):>{_CHART - 1}}")
    return table


def _bar(assignments: list[Assignment], end_seconds: float, colours: dict[str, str]) -> Text:
    bar = Text()
    for column in range(_CHART):
        now = (column + 0.5) * end_seconds / _CHART
        there = [each for each in assignments if each.start_seconds <= now < each.end_seconds]
        sign = " " if not there else "█" if len(there) == 1 else "▓"
        bar.append(sign, style=colours[there[0].task] if there else "")
    return bar


def _table(plan: Plan) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("task", no_wrap=True)
    table.add_column("GPUs")
    for heading in ("start", "end"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("why")
    for each in plan.assignments[:_MOST_TASKS]:
        table.add_row(
            each.task,
            " ".join(each.gpus),
            _seconds(each.start_seconds),
            _seconds(each.end_seconds),
            each.reason,
        )
    return table


def print_why(why: Why) -> None:
    """Of one task: every model of GPU, and what speaks against it."""
    console = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 160)
    console.print(f"{why.task}: {why.reason}", markup=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("GPU", "alone", "memory", "start", "end", ""):
        table.add_column(heading)
    for each in why.alternatives:
        table.add_row(
            each.gpu,
            _seconds(each.alone_seconds),
            format_bytes(each.memory_bytes) if each.memory_bytes is not None else "",
            _seconds(each.start_seconds),
            _seconds(each.end_seconds),
            "chosen" if each.chosen else each.verdict,
        )
    console.print(table)


def _seconds(seconds: float | None) -> str:
    """Nothing for None."""
    return "" if seconds is None else format_seconds(seconds) if seconds else "0"

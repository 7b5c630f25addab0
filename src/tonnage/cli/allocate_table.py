"""A plan on the terminal: its value and bound, a Gantt chart of the GPUs, a line for each task."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tonnage.allocate.alternatives import alternatives
from tonnage.allocate.objectives import Objective, words_for
from tonnage.errors import NotFound
from tonnage.hardware.catalogue import nearest
from tonnage.units import format_seconds

if TYPE_CHECKING:
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
    for each in plan.unplaced:
        print(f"not placed: {each.task}: {each.reason}", file=sys.stderr)


def _summary(problem: Problem, plan: Plan) -> Text:
    objective = Objective(plan.objective)
    text = Text()
    text.append(f"{len(plan.assignments)} tasks on {len(problem.devices)} GPUs: ")
    text.append(f"{objective.value} {words_for(objective, plan.value)}", style="bold")
    if plan.bound > 0:
        text.append(f", no plan is below {words_for(objective, plan.bound)} (gap {plan.gap:.1%})")
    if objective is not Objective.MAKESPAN:
        text.append(f"; all done after {format_seconds(plan.makespan_seconds)}")
    text.append(f"; found in {format_seconds(plan.solver_seconds)}")
    return text


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
            format_seconds(each.start_seconds) if each.start_seconds else "0",
            format_seconds(each.end_seconds),
            each.reason,
        )
    return table


def print_why(problem: Problem, plan: Plan, task: str) -> None:
    """Of one task: every model of GPU, and what speaks against it."""
    names = [each.name for each in problem.tasks]
    if task not in names:
        raise NotFound(f"there is no task {task}", f"did you mean {nearest(task, names)}?")
    console = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 160)
    reasons = {each.task: each.reason for each in plan.assignments} | {each.task: each.reason for each in plan.unplaced}
    console.print(f"{task}: {reasons[task]}", markup=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("GPU", "alone", "memory", "free from", "then done", ""):
        table.add_column(heading)
    for row in alternatives(problem, plan, task):
        table.add_row(row.gpu, row.alone, row.memory, row.free_from, row.done, row.verdict)
    console.print(table)

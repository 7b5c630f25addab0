"""What a plan does not know: said beside it, since a task without watts or a GPU without a price looks cheap."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tonnage.allocate.objectives import Objective

if TYPE_CHECKING:
    from tonnage.allocate.plan import Plan
    from tonnage.allocate.problem import Problem

_NAMES = 3  # are told, of many


def print_notes(problem: Problem, plan: Plan) -> None:
    if plan.objective == Objective.ENERGY and (tasks := _without_watts(problem)):
        _note(f"no `watts` are given for {_some(tasks)}: that energy is counted as none")
    if plan.objective == Objective.COST and (models := _without_price(problem)):
        _note(f"no price is known of {_some(models)}: it is counted as free; `price_usd_hour` of the node tells it")
    if plan.objective == Objective.DEADLINE and all(task.deadline_seconds is None for task in problem.tasks):
        _note("no task has a `deadline`, so every plan is as good")


def _without_watts(problem: Problem) -> list[str]:
    return [task.name for task in problem.tasks if any(not each.watts for each in task.profiles.values())]


def _without_price(problem: Problem) -> list[str]:
    return list(dict.fromkeys(device.gpu for device in problem.devices if not device.price_usd_hour))


def _some(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - _NAMES} more" if len(every) > _NAMES else ""
    return ", ".join(every[:_NAMES]) + more


def _note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr)

"""From a problem to a plan: what can run, a bound, the best plan found, and why each task is where it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from tonnage.allocate.bounds import Bounds
from tonnage.allocate.check import check
from tonnage.allocate.feasible import split_feasible
from tonnage.allocate.objectives import Objective
from tonnage.allocate.plan import Plan
from tonnage.allocate.precedence import check_precedence
from tonnage.allocate.problem import Problem
from tonnage.allocate.reasons import with_reasons
from tonnage.allocate.search import best_found
from tonnage.errors import UsageError

_ROUNDING = 1e-6  # of linear programs; a bound that is further above the value is wrong, and the checker says so


def allocate_tasks(
    problem: Problem,
    objective: Objective = Objective.MAKESPAN,
    *,
    smallest: Mapping[str, str] = MappingProxyType({}),
    keep_going: Callable[[], bool] = lambda: True,
) -> Plan:
    """`keep_going` ends the search for better plans early; the first plan is always finished."""
    _check(problem)
    possible, unplaced = split_feasible(problem, smallest)
    bounds = Bounds(possible)
    bound = bounds.lower(objective)
    value, assignments = best_found(objective, bounds, bound.value, keep_going) if possible.tasks else (0.0, [])
    order = {task.name: number for number, task in enumerate(problem.tasks)}
    plan = Plan(
        objective=objective.value,
        value=value,
        bound=value if value < bound.value <= value * (1 + _ROUNDING) else bound.value,
        assignments=tuple(sorted(assignments, key=lambda each: (each.start_seconds, order[each.task]))),
        unplaced=tuple(unplaced),
        solver="orders" if any(task.gpus > 1 or task.after for task in possible.tasks) else "lanes",
        one_more=dict(zip(possible.models, bound.prices.tolist(), strict=True)),
    )
    check(possible, replace(plan, unplaced=()))
    return replace(plan, assignments=with_reasons(problem, objective, plan))


def _check(problem: Problem) -> None:
    if not problem.devices:
        raise UsageError("the cluster has no GPUs")
    counts = Counter(task.name for task in problem.tasks)
    if double := [name for name, count in counts.items() if count > 1]:
        raise UsageError(f"there are several tasks called {double[0]}")
    if none := [task.name for task in problem.tasks if task.gpus < 1]:
        raise UsageError(f"{none[0]} wants less than one GPU")
    check_precedence(problem.tasks)

"""Tasks that wait for others: an order that respects it, or what makes that impossible."""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

from tonnage.allocate.problem import Task
from tonnage.errors import UsageError


def check_precedence(tasks: Sequence[Task]) -> None:
    names = {task.name for task in tasks}
    for task in tasks:
        if unknown := [name for name in task.after if name not in names]:
            raise UsageError(f"{task.name} waits for {unknown[0]}, which is no task")
    try:
        TopologicalSorter({task.name: task.after for task in tasks}).prepare()
    except CycleError as error:
        circle = " -> ".join(reversed(error.args[1]))
        raise UsageError(f"tasks wait for each other in a circle: {circle}") from None


def in_order(tasks: Sequence[Task]) -> list[Task]:
    """As given, except that nobody comes before those for whom it waits."""
    placed: set[str] = set()
    made: list[Task] = []
    by_name = {task.name: task for task in tasks}

    def put(task: Task) -> None:
        stack = [task]
        while stack:
            waits = [name for name in stack[-1].after if name not in placed]
            if waits:
                stack.append(by_name[waits[0]])
            else:
                last = stack.pop()
                if last.name not in placed:
                    placed.add(last.name)
                    made.append(last)

    for task in tasks:
        put(task)
    return made

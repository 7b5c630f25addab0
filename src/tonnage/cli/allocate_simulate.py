"""`tonnage allocate --simulate`: the tasks as they come, by the online scheduler."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from tonnage.allocate.arrivals import not_played, play_arrivals
from tonnage.allocate.objectives import Objective
from tonnage.cli.output import progress

if TYPE_CHECKING:
    from tonnage.allocate.problem import Problem


def print_simulation(problem: Problem, objective: Objective, *, as_json: bool) -> bool:
    """Whether all tasks could run."""
    if names := list(not_played(problem)):
        print(f"note: the online scheduler does not look at {', '.join(names)}", file=sys.stderr)
    total = len(problem.tasks)
    with progress() as say:
        summary, unplaced = play_arrivals(
            problem,
            objective,
            clock=time.process_time,
            progress=lambda done: say(f"{done:,} of {total:,} tasks are done"),
        )
    if as_json:
        print(json.dumps({**asdict(summary), "unplaced": [each.as_dict() for each in unplaced]}))
    else:
        from rich.console import Console

        from tonnage.cli.simulate_table import details

        Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 140).print(details(summary))
        for each in unplaced:
            print(f"not placed: {each.task}: {each.reason}", file=sys.stderr)
    return not unplaced

"""`tonnage allocate --engine`: show what would be submitted, submit it, follow it."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tonnage.allocate.plan import Plan
    from tonnage.allocate.problem import Problem
    from tonnage.allocate.tasks_models import TasksFile
    from tonnage.planning.measuring import Told
    from tonnage.planning.running import Followed
    from tonnage.planning.watching import Watch

EXIT_UNPLACED = 3


def carry_out(
    problem: Problem,
    plan: Plan,
    file: TasksFile,
    engine: str,
    option: list[str],
    *,
    run: str,
    image: str,
    submit: bool,
    watch: bool,
    as_json: bool,
) -> int:
    """Without `submit`, only print. The exit code is 3 where a task has no place, 1 where one failed."""
    from tonnage.cli.output import progress
    from tonnage.engines.options import parse_options
    from tonnage.engines.registry import find_engine
    from tonnage.planning.measuring import keep_measurements
    from tonnage.planning.orders import describe, orders_of
    from tonnage.planning.running import Run
    from tonnage.planning.watching import Watch

    chosen = find_engine(engine)
    options = parse_options(chosen.Options, option)
    _check_machines(engine, plan)
    orders = orders_of(problem, plan, file, run, image=image)
    if not submit:
        texts = {order.task: chosen.plan(order.job, options).text for order in orders}
        print(json.dumps({**plan.as_dict(), "manifests": texts}) if as_json else describe(orders, texts))
        return EXIT_UNPLACED if plan.unplaced else 0
    running = Run(orders, chosen, options)
    with progress() as say:
        new = running.submit(say)
    if not as_json:
        print(
            f"{len(new)} tasks submitted, {len(running.tasks) - len(new)} were already or wait; `tonnage status` shows them"
        )
    if watch:
        _watch(Watch(problem=problem, plan=plan, file=file, name=run, run=running, image=image), quiet=as_json)
    told = keep_measurements(running, problem, file) if watch else []
    if told and not as_json:
        _print_told(told)
    if as_json:
        running.look()
        print(
            json.dumps(
                {
                    **plan.as_dict(),
                    "submitted": new,
                    "tasks": [_describe(each) for each in running.tasks.values()],
                    "measured": [asdict(each) for each in told],
                }
            )
        )
    if watch and any(each.status.state != "succeeded" for each in running.tasks.values()):
        return 1
    return EXIT_UNPLACED if plan.unplaced else 0


def _check_machines(engine: str, plan: Plan) -> None:
    """An engine of one machine cannot run a plan for several."""
    from tonnage.errors import UsageError

    nodes = {place.rpartition("/")[0] for each in plan.assignments for place in each.gpus}
    if engine in ("local", "podman", "docker") and len(nodes) > 1:
        raise UsageError(
            f"the plan uses {len(nodes)} nodes, {engine} has this machine alone",
            "describe this machine alone in the cluster file, or choose another engine",
        )


def _watch(watch: Watch, *, quiet: bool) -> None:
    if not quiet:
        watch.say = lambda text: print(text, flush=True)
    for each in watch.follow():
        if not quiet:
            _tell(each)


def _tell(each: Followed) -> None:
    where = f" on {' '.join(each.status.devices)}" if each.status.devices else ""
    why = f": {each.status.reason}" if each.status.reason else ""
    again = f" (started again {each.status.restarts} times)" if each.status.restarts else ""
    print(
        f"{time.strftime('%H:%M:%S')} {each.task} {each.status.state}{where}{again}{why}", file=sys.stdout, flush=True
    )


def _print_told(told: list[Told]) -> None:
    from tonnage.units import format_seconds

    print("\na step, predicted and measured; the next plan goes by what was measured")
    for each in told:
        predicted, measured = format_seconds(each.predicted_step_seconds), format_seconds(each.measured_step_seconds)
        print(f"  {each.task} on {each.gpu}: {predicted}, {measured} ({each.error:+.0%})")


def _describe(each: Followed) -> dict[str, Any]:
    status = each.status
    return {
        "task": each.task,
        "deployment": each.deployment.id if each.deployment else None,
        "state": status.state.value,
        "exit_code": status.exit_code,
        "devices": list(status.devices),
        "restarts": status.restarts,
        "started_at": status.started_at,
        "ended_at": status.ended_at,
        "reason": status.reason,
    }

"""`tonnage allocate --engine`: show what would be submitted, submit it, follow it."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tonnage.allocate.plan import Plan
    from tonnage.allocate.problem import Problem
    from tonnage.allocate.tasks_models import TasksFile
    from tonnage.engines.base import Engine, EngineOptions
    from tonnage.hardware.cluster import Cluster
    from tonnage.planning.live import LiveTasks
    from tonnage.planning.measuring import Told
    from tonnage.planning.orders import Order
    from tonnage.planning.running import Followed, Run
    from tonnage.planning.watching import Watch

EXIT_FAILED, EXIT_UNPLACED = 1, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a plan shall run, and how far it goes: shown, submitted, or followed to its end."""

    engine: Engine
    options: EngineOptions
    run: str
    image: str
    submit: bool
    watch: bool


def target_of(name: str, option: list[str], *, run: str, image: str, submit: bool, watch: bool) -> Target | None:
    """None without an engine; what is wrong with the words for it is said before anything is estimated."""
    from tonnage.engines.jobs import check_image
    from tonnage.engines.options import parse_options
    from tonnage.engines.registry import find_engine
    from tonnage.errors import UsageError

    if not name:
        for given, words in ((submit, "--submit"), (watch, "--watch"), (option, "--option"), (run, "--run")):
            if given:
                raise UsageError(f"{words} needs an engine", "name one: --engine slurm")
        return None
    engine = find_engine(name)
    options = parse_options(engine.Options, option)
    check_image(name, image)
    return Target(engine=engine, options=options, run=run, image=image, submit=submit or watch, watch=watch)


def fit(problem: Problem, file: TasksFile, target: Target) -> Problem:
    """As the engine can carry it out. One that does not answer is an error only where something is to be submitted."""
    from tonnage.engines.deploying import Deployments
    from tonnage.errors import Unreachable
    from tonnage.planning.fitting import pinned_as_submitted, sharing_as_possible

    problem = pinned_as_submitted(problem, file, target.run, Deployments())
    try:
        fitting = sharing_as_possible(problem, target.engine, target.options)
    except Unreachable:
        if target.submit:
            raise
        return problem
    if fitting.most_together < problem.most_together:
        print(
            f"note: {target.engine.name} gives each task whole GPUs here, so the plan shares none", file=sys.stderr
        )  # fmt: skip
    return fitting


def carry_out(
    problem: Problem, plan: Plan, file: TasksFile, target: Target, live: LiveTasks, machines: Cluster, *, as_json: bool
) -> int:
    """The exit code is 3 where a task has no place, 1 where one failed that was followed."""
    from tonnage.planning.measuring import keep_measurements
    from tonnage.planning.orders import orders_of
    from tonnage.planning.running import Run
    from tonnage.planning.watching import Watch

    _check_machines(target.engine, plan)
    orders = orders_of(problem, plan, file, target.run, image=target.image)
    if not target.submit:
        _show(plan, orders, target, as_json=as_json)
        return EXIT_UNPLACED if plan.unplaced else 0
    running = Run(orders, target.engine, target.options)
    new = _submit(running, plan, quiet=as_json)
    unplaced = {each.task for each in plan.unplaced}
    told: list[Told] = []
    if target.watch:
        live.say = _speak_aside if as_json else _speak
        watch = Watch(
            problem=problem, plan=plan, file=file, run=running, name=target.run, image=target.image, live=live,
            cluster=machines, say=live.say,
        )  # fmt: skip
        _follow(watch, quiet=as_json)
        unplaced |= watch.unplaced.keys()
        told = keep_measurements(running, watch.problem, watch.file)
    if as_json:
        _print_json(plan, running, new, told)
    elif told:
        _print_told(told)
    if target.watch and any(each.status.state != "succeeded" for each in running.tasks.values()):
        return EXIT_FAILED
    return EXIT_UNPLACED if unplaced else 0


def _check_machines(engine: Engine, plan: Plan) -> None:
    """An engine of one machine cannot run a plan for several."""
    from tonnage.engines.base import HoldsGpus
    from tonnage.errors import UsageError

    nodes = {place.rpartition("/")[0] for each in plan.assignments for place in each.gpus}
    if isinstance(engine, HoldsGpus) and len(nodes) > 1:
        raise UsageError(
            f"the plan uses {len(nodes)} nodes, {engine.name} has this machine alone",
            "describe this machine alone in the cluster file, or choose another engine",
        )


def _show(plan: Plan, orders: list[Order], target: Target, *, as_json: bool) -> None:
    from tonnage.planning.orders import describe

    texts = {order.task: target.engine.plan(order.job, target.options).text for order in orders}
    print(json.dumps({**plan.as_dict(), "manifests": texts}) if as_json else describe(orders, texts))
    _tell_unplaced(plan)


def _tell_unplaced(plan: Plan) -> None:
    for each in plan.unplaced:
        print(f"not placed: {each.task}: {each.reason}", file=sys.stderr)


def _submit(running: Run, plan: Plan, *, quiet: bool) -> list[str]:
    from tonnage.cli.output import progress

    with progress() as say:
        say("asking how those are that were submitted before")
        running.look()
        new = running.submit(say)
    if not quiet:
        before = sum(each.deployment is not None for each in running.tasks.values()) - len(new)
        waiting = len(running.tasks) - len(new) - before
        parts = [f"{len(new)} tasks submitted"]
        parts += [f"{before} were before"] if before else []
        parts += [f"{waiting} wait for their turn"] if waiting else []
        print(f"{', '.join(parts)}; `tonnage status` shows them", flush=True)
    _tell_unplaced(plan)
    return new


def _speak(text: str) -> None:
    print(text, flush=True)


def _speak_aside(text: str) -> None:
    """Beside the one document that is printed at the end."""
    print(text, file=sys.stderr, flush=True)


def _follow(watch: Watch, *, quiet: bool) -> None:
    try:
        for each in watch.follow():
            if not quiet:
                _tell(each)
    except KeyboardInterrupt:
        _speak_aside("what was submitted goes on; the same command follows it again")
        raise


def _print_json(plan: Plan, running: Run, new: list[str], told: list[Told]) -> None:
    running.look()
    tasks = [_describe(each) for each in running.tasks.values()]
    measured = [asdict(each) for each in told]
    print(json.dumps({**plan.as_dict(), "submitted": new, "tasks": tasks, "measured": measured}))


def _tell(each: Followed) -> None:
    status = each.status
    where = f" on {' '.join(status.devices)}" if status.devices else ""
    again = f" (started again {status.restarts} times)" if status.restarts else ""
    why = f": {status.reason}" if status.reason else ""
    log = f"; tonnage logs {each.deployment.id}" if status.state == "failed" and each.deployment is not None else ""
    _speak(f"{time.strftime('%H:%M:%S')} {each.task} {status.state}{where}{again}{why}{log}")


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

"""Plans while something runs already: what was submitted stays where it is, the rest is planned around it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from tonnage.allocate.plan import Plan
from tonnage.allocate.problem import Problem, Task
from tonnage.engines.base import HasInventory, JobState
from tonnage.planning.making import plan_for
from tonnage.planning.orders import Order
from tonnage.planning.running import Followed, Run

_SECONDS = 2.0  # others go on meanwhile
_LEAST_LEFT = 0.05  # of a task that runs longer than was planned


def lost_nodes(run: Run) -> set[str]:
    """Nodes of unfinished tasks that the engine no longer gives jobs to; none where it does not tell."""
    if not isinstance(run.engine, HasInventory):
        return set()
    wanted = {node for each in run.tasks.values() if _can_move(each) for node in nodes_of(each)}
    if not wanted:
        return set()
    up = {node.name for node in run.engine.inventory(run.options) if node.is_up}
    return wanted - up


def nodes_of(each: Followed) -> set[str]:
    return {place.rpartition("/")[0] for place in each.order.places}


def _can_move(each: Followed) -> bool:
    """Not what is done, and not what somebody has stopped on purpose."""
    return each.status.state not in (JobState.SUCCEEDED, JobState.CANCELLED) and not each.given_up


def stranded(run: Run, lost: Collection[str]) -> list[str]:
    """Tasks that a lost node has taken along, or that wait for it in vain."""
    return [name for name, each in run.tasks.items() if _can_move(each) and nodes_of(each) & set(lost)]


def staying(run: Run, lost: Collection[str] = ()) -> dict[str, Followed]:
    """Tasks that were submitted, are not over and have lost nothing."""
    moving = set(stranded(run, lost))
    return {
        name: each
        for name, each in run.tasks.items()
        if each.deployment is not None and not each.status.state.is_over and name not in moving
    }


def plan_anew(problem: Problem, objective: str, run: Run, now_seconds: float, lost: Collection[str] = ()) -> Plan:
    """What is over is left out, what stays is where it was, all else may go anywhere. Times count from now.

    What was submitted to GPUs that are not in the cluster any more is left out as well.
    """
    moving, stay = set(stranded(run, lost)), staying(run, lost)
    models = {device.place: device.gpu for device in problem.devices}
    elsewhere = {name for name, each in stay.items() if not _is_among(each.order.places, models)}
    over = {name for name, each in run.tasks.items() if each.status.state.is_over} - moving | elsewhere
    tasks = tuple(
        replace(
            _as_it_is(task, stay[task.name], models, now_seconds) if task.name in stay else task,
            after=tuple(name for name in task.after if name not in over),
        )
        for task in problem.tasks
        if task.name not in over
    )
    devices = tuple(device for device in problem.devices if device.node not in lost)
    return plan_for(replace(problem, devices=devices, tasks=tasks), objective, seconds=_SECONDS)


def _is_among(places: tuple[str, ...], known: Collection[str]) -> bool:
    return bool(places) and all(place in known for place in places)


def _as_it_is(task: Task, each: Followed, models: Mapping[str, str], now_seconds: float) -> Task:
    """On its GPUs, alone if it has them alone, and with the steps that are left by what was predicted."""
    places, started_at = each.order.places, each.status.started_at
    alone_seconds = task.seconds_on(models[places[0]])
    elapsed_seconds = now_seconds - started_at if started_at is not None else 0.0
    left = max(_LEAST_LEFT, 1.0 - elapsed_seconds / alone_seconds)
    shares = task.may_share and each.order.job.resources.shares_gpus
    return replace(task, pinned=places, may_share=shares, steps=task.steps * min(1.0, left))


def behind(order: Order, plan: Plan, stay: Mapping[str, Followed]) -> Order:
    """After what has its GPUs already, even where the plan would have it first."""
    beside = next(each.beside for each in plan.assignments if each.task == order.task)
    holding = [
        name
        for name, each in stay.items()
        if name not in (order.task, *beside) and set(each.order.places) & set(order.places)
    ]
    return replace(order, waits_for=tuple(dict.fromkeys([*order.waits_for, *holding])))

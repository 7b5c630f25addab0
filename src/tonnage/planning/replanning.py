"""Plans while something runs already: what was submitted stays where it is, the rest is planned around it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from tonnage.allocate.plan import Plan
from tonnage.allocate.problem import Problem, Task
from tonnage.engines.base import HasInventory, JobState
from tonnage.planning.making import plan_for
from tonnage.planning.orders import Order
from tonnage.planning.running import Followed, Run

_SECONDS = 2.0  # others go on meanwhile
_LEAST_LEFT = 0.05  # of a task that runs longer than was planned


@dataclass(frozen=True, slots=True, kw_only=True)
class Away:
    """Nodes that take no jobs: what waits for them moves. From those that are lost, so does what ran there."""

    closed: frozenset[str] = frozenset()  # the lost ones among them
    lost: frozenset[str] = frozenset()

    def takes(self, each: Followed) -> bool:
        """Whether the task has to go elsewhere. Not if it is done, or somebody has stopped it on purpose."""
        if each.given_up or each.status.state in (JobState.SUCCEEDED, JobState.CANCELLED):
            return False
        gone = self.closed if each.status.state is JobState.PENDING else self.lost
        return not gone.isdisjoint(nodes_of(each))


NONE_AWAY = Away()


def away_nodes(run: Run, nodes: Collection[str]) -> Away:
    """Among these; none where the engine does not tell, or all is done."""
    if not isinstance(run.engine, HasInventory) or all(each.status.state == "succeeded" for each in run.tasks.values()):
        return Away()
    told = run.engine.inventory(run.options)
    up, there = {node.name for node in told if node.is_up}, {node.name for node in told if not node.is_lost}
    return Away(closed=frozenset(nodes) - up, lost=frozenset(nodes) - there)


def nodes_of(each: Followed) -> set[str]:
    return {place.rpartition("/")[0] for place in each.order.places}


def stranded(run: Run, away: Away) -> list[str]:
    return [name for name, each in run.tasks.items() if away.takes(each)]


def staying(run: Run, away: Away) -> dict[str, Followed]:
    """Tasks that were submitted, are not over and need not go elsewhere."""
    return {
        name: each
        for name, each in run.tasks.items()
        if each.deployment is not None and not each.status.state.is_over and not away.takes(each)
    }


def plan_anew(problem: Problem, objective: str, run: Run, now_seconds: float, away: Away = NONE_AWAY) -> Plan:
    """What is over is left out, what stays is where it was, all else may go anywhere. Times count from now.

    What goes on where nothing else can go is left out as well.
    """
    stay, devices = staying(run, away), tuple(device for device in problem.devices if device.node not in away.closed)
    all_models = {device.place: device.gpu for device in problem.devices}
    models = {device.place: device.gpu for device in devices}
    elsewhere = {name for name, each in stay.items() if not _is_among(each.order.places, models)}
    over = {name for name, each in run.tasks.items() if each.status.state.is_over and not away.takes(each)} | elsewhere
    tasks = tuple(
        replace(
            _as_it_is(task, stay[task.name], models, now_seconds)
            if task.name in stay
            else _from_its_checkpoint(task, run.tasks.get(task.name), all_models, now_seconds),
            after=tuple(name for name in task.after if name not in over),
        )
        for task in problem.tasks
        if task.name not in over
    )
    return plan_for(replace(problem, devices=devices, tasks=tasks), objective, seconds=_SECONDS)


def _is_among(places: tuple[str, ...], known: Collection[str]) -> bool:
    return bool(places) and all(place in known for place in places)


def _as_it_is(task: Task, each: Followed, models: Mapping[str, str], now_seconds: float) -> Task:
    """On its GPUs, alone if it has them alone, and with the steps that are left by what was predicted."""
    places = each.order.places
    left = max(_LEAST_LEFT, 1.0 - _working_seconds(task, each, now_seconds) / _steps_seconds(task, models[places[0]]))
    shares = task.may_share and each.order.job.resources.shares_gpus
    start_seconds = task.start_seconds if each.status.started_at is None else 0.0
    return replace(task, pinned=places, may_share=shares, steps=task.steps * left, start_seconds=start_seconds)


def _from_its_checkpoint(task: Task, each: Followed | None, models: Mapping[str, str], now_seconds: float) -> Task:
    """A task that starts anew goes on where it last wrote a checkpoint, if it writes any."""
    if each is None or not task.checkpoint_seconds or not _is_among(each.order.places, models):
        return task
    kept = _working_seconds(task, each, now_seconds) // task.checkpoint_seconds * task.checkpoint_seconds
    done = kept / _steps_seconds(task, models[each.order.places[0]])
    return replace(task, steps=task.steps * max(_LEAST_LEFT, 1.0 - done))


def _working_seconds(task: Task, each: Followed, now_seconds: float) -> float:
    """Since its first step, as far as it has started."""
    started_at = each.status.started_at
    return max(0.0, now_seconds - started_at - task.start_seconds) if started_at is not None else 0.0


def _steps_seconds(task: Task, gpu: str) -> float:
    return task.seconds_on(gpu) - task.start_seconds


def behind(order: Order, plan: Plan, stay: Mapping[str, Followed]) -> Order:
    """After what has its GPUs already, even where the plan would have it first."""
    beside = next(each.beside for each in plan.assignments if each.task == order.task)
    holding = [
        name
        for name, each in stay.items()
        if name not in (order.task, *beside) and set(each.order.places) & set(order.places)
    ]
    return replace(order, waits_for=tuple(dict.fromkeys([*order.waits_for, *holding])))

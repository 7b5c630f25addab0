"""What a lost node leaves undone is planned anew on the nodes that are left; everything else stays where it is."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tonnage.allocate.plan import Assignment, Plan
from tonnage.allocate.problem import Problem, Task
from tonnage.engines.base import HasInventory, JobState
from tonnage.planning.making import plan_for
from tonnage.planning.running import Followed, Run

_SECONDS = 2.0  # others go on meanwhile


def lost_nodes(run: Run) -> set[str]:
    """Nodes of unfinished tasks that the engine no longer gives jobs to; none where it does not tell."""
    if not isinstance(run.engine, HasInventory):
        return set()
    wanted = {node for each in run.tasks.values() if _can_move(each) for node in nodes_of(each)}
    if not wanted:
        return set()
    up = {node.name for node in run.engine.inventory() if node.is_up}
    return wanted - up


def nodes_of(each: Followed) -> set[str]:
    return {placement.node for placement in each.order.job.placements}


def _can_move(each: Followed) -> bool:
    """Not what is done, and not what somebody has stopped on purpose."""
    return each.status.state not in (JobState.SUCCEEDED, JobState.CANCELLED) and not each.given_up


def stranded(run: Run, lost: Collection[str]) -> list[str]:
    """Tasks that a lost node has taken along, or that wait for it in vain."""
    return [name for name, each in run.tasks.items() if _can_move(each) and nodes_of(each) & set(lost)]


def plan_anew(problem: Problem, plan: Plan, run: Run, lost: Collection[str]) -> Plan:
    """A plan in which only stranded tasks have moved. Times count from now, as far as they were planned."""
    moving = set(stranded(run, lost))
    over = {name for name, each in run.tasks.items() if each.status.state.is_over}
    staying = {each.task: each for each in plan.assignments if each.task not in moving | over}
    devices = tuple(device for device in problem.devices if device.node not in lost)
    tasks = tuple(
        _settled(task, staying.get(task.name), moving | staying.keys())
        for task in problem.tasks
        if task.name in moving or task.name in staying
    )
    return plan_for(replace(problem, devices=devices, tasks=tasks), plan.objective, seconds=_SECONDS)


def _settled(task: Task, stays: Assignment | None, present: Collection[str]) -> Task:
    after = tuple(name for name in task.after if name in present)
    return replace(task, after=after, pinned=stays.gpus if stays else ())

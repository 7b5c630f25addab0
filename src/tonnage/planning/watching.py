"""Keeps a run going: submits what may start, tells what changed, and plans anew when a node is lost or tasks are added."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from tonnage.allocate.plan import Plan
from tonnage.allocate.problem import Problem
from tonnage.allocate.tasks_models import TasksFile
from tonnage.errors import TonnageError, Unreachable
from tonnage.hardware.cluster import Cluster
from tonnage.planning.live import LiveTasks, added, joined
from tonnage.planning.making import problem_of
from tonnage.planning.orders import Order, orders_of
from tonnage.planning.replanning import NONE_AWAY, Away, away_nodes, behind, nodes_of, plan_anew, staying, stranded
from tonnage.planning.running import Followed, Run

_LOOK_SECONDS = 1.0
_INVENTORY_SECONDS = 5.0
_MANY = 5  # names in a sentence
_SILENT_SECONDS = 600.0  # that an engine may not answer, such as while it is restarted


@dataclass(slots=True, kw_only=True)
class Watch:
    """A plan while it is carried out. With `live`, tasks that are added to the file are run as well."""

    problem: Problem
    plan: Plan
    file: TasksFile
    run: Run
    name: str = ""
    image: str = ""
    live: LiveTasks | None = None
    cluster: Cluster | None = None  # what the plan was made for, where there is a live file
    replans: int = 0
    unplaced: dict[str, str] = field(default_factory=dict)  # reasons, of tasks that came later
    say: Callable[[str], None] = lambda text: None
    _asked: float = field(default=-1e9)
    _answered: float | None = field(default=None)
    _is_silent: bool = field(default=False)
    _away: Away = field(default=NONE_AWAY)
    _has_no_nodes: bool = field(default=False)

    def follow(self, pause: Callable[[float], None] = time.sleep) -> Iterator[Followed]:
        """Every task whenever it has changed, until all are over."""
        while True:
            try:
                yield from self._look()
                if self._is_over():
                    return
                self._answered, self._is_silent = time.monotonic(), False
            except Unreachable as error:
                self._bear(error)
            pause(_LOOK_SECONDS)

    def _look(self) -> list[Followed]:
        if time.monotonic() - self._asked > _INVENTORY_SECONDS:
            self._look_for_losses()
        self._look_for_tasks()
        self.run.submit(complain=self.say)
        return self.run.look()

    def _is_over(self) -> bool:
        """What has failed at the very end may have been on a node that was lost just now."""
        has_news = self.live is not None and self.live.has_changed
        return self.run.is_over and not has_news and not self._look_for_losses()

    def _bear(self, error: Unreachable) -> None:
        """An engine that has answered before: its jobs go on, also while it is silent."""
        if self._answered is None or time.monotonic() - self._answered > _SILENT_SECONDS:
            raise error
        if not self._is_silent:
            self.say(f"{error.message}; trying again")
        self._is_silent = True

    # -- planning anew ----------------------------------------------------------------------------------------------------

    def _look_for_losses(self) -> bool:
        """Whether tasks have to go elsewhere, so that something is to be done again."""
        self._asked = time.monotonic()
        before, self._away = self._away, away_nodes(self.run, {device.node for device in self.problem.devices})
        # Closed at two looks: after a restart of Slurm's controller all nodes are for a moment.
        sure = Away(closed=self._away.closed & before.closed | self._away.lost, lost=self._away.lost)
        if not stranded(self.run, sure):
            return False
        if all(device.node in sure.closed for device in self.problem.devices):
            self._wait_for_nodes()
        else:
            self._move(sure)
        return True

    def _wait_for_nodes(self) -> None:
        if not self._has_no_nodes:
            self.say("no node takes jobs: waiting for one to come back")
        self._has_no_nodes = True

    def _move(self, away: Away) -> None:
        self._has_no_nodes = False
        moving = stranded(self.run, away)
        nodes = away.closed & {node for name in moving for node in nodes_of(self.run.tasks[name])}
        self.say(f"{', '.join(sorted(nodes))} lost: {len(moving)} tasks are planned anew")
        plan = plan_anew(self.problem, self.plan.objective, self.run, time.time(), away)
        attempts = dict.fromkeys(moving, self.run.attempts + 1)
        for order in self._orders(self.problem, plan, self.file, attempts, away):
            self.run.move(order)
        for each in plan.unplaced:
            if each.task in self.run.tasks:
                self.run.give_up(each.task, each.reason)
        self.plan = plan

    def _look_for_tasks(self) -> None:
        file = self.live.look() if self.live is not None else None
        more = added(file, [task.name for task in self.problem.tasks]) if file is not None else None
        if more is None:
            return
        try:
            self._add(more)
        except TonnageError as error:
            self.say(f"{error.message}: the tasks that are known go on")

    def _add(self, more: TasksFile) -> None:
        """Those that were submitted stay; those that wait here may be planned elsewhere. All of it is done, or nothing."""
        assert self.cluster is not None
        known = {task.name for task in self.problem.tasks}
        found, _ = problem_of(more, self.cluster)
        new = {task.name: task for task in found.tasks if task.name not in known}
        wider = replace(self.problem, tasks=(*self.problem.tasks, *new.values()))
        there = tuple(device for device in wider.devices if device.node not in self._away.closed)
        plan = plan_anew(replace(wider, devices=there), self.plan.objective, self.run, time.time())
        file = joined(self.file, more)
        waiting = {name: each.order.attempt for name, each in self.run.tasks.items() if each.deployment is None}
        orders = self._orders(wider, plan, file, waiting | dict.fromkeys(new, 0))
        self.run.add([order for order in orders if order.task in new])
        for order in orders:
            if order.task in waiting:
                self.run.move(order)
        self.problem, self.plan, self.file = wider, plan, file
        self.say(f"new in the file: {_names(list(new))}")
        self._tell_unplaced({each.task: each.reason for each in plan.unplaced if each.task in new})

    def _tell_unplaced(self, reasons: Mapping[str, str]) -> None:
        self.unplaced.update(reasons)
        for task, reason in reasons.items():
            self.say(f"not placed: {task}: {reason}")

    def _orders(
        self, problem: Problem, plan: Plan, file: TasksFile, attempts: Mapping[str, int], away: Away = NONE_AWAY
    ) -> list[Order]:
        """Of a plan that was made anew, each behind what has its GPUs already."""
        orders = orders_of(problem, plan, file, self.name, image=self.image, attempts=attempts)
        self.replans += 1
        return [behind(order, plan, staying(self.run, away)) for order in orders]


def _names(names: list[str]) -> str:
    more = f" and {len(names) - _MANY} more" if len(names) > _MANY else ""
    return ", ".join(names[:_MANY]) + more

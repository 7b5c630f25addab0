"""Keeps a run going: submits what may start, tells what changed, and plans anew what a lost node leaves undone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tonnage.allocate.plan import Plan
from tonnage.allocate.problem import Problem
from tonnage.allocate.tasks_models import TasksFile
from tonnage.planning.orders import orders_of
from tonnage.planning.replanning import lost_nodes, plan_anew, stranded
from tonnage.planning.running import Followed, Run

_LOOK_SECONDS = 1.0
_INVENTORY_SECONDS = 5.0


@dataclass(slots=True, kw_only=True)
class Watch:
    """A plan while it is carried out. `replans` counts how often parts of it were planned anew."""

    problem: Problem
    plan: Plan
    file: TasksFile
    name: str
    run: Run
    image: str = ""
    replans: int = 0
    say: Callable[[str], None] = lambda text: None
    _asked: float = field(default=-1e9)

    def follow(self, pause: Callable[[float], None] = time.sleep) -> Iterator[Followed]:
        """Every task whenever it has changed, until all are over."""
        while True:
            if time.monotonic() - self._asked > _INVENTORY_SECONDS:
                self._look_for_losses()
            self.run.submit()
            yield from self.run.look()
            # What has failed at the very end may have been on a node that was lost just now.
            if self.run.is_over and not self._look_for_losses():
                return
            pause(_LOOK_SECONDS)

    def _look_for_losses(self) -> bool:
        """Whether there were any, so that something is to be done again."""
        self._asked = time.monotonic()
        lost = lost_nodes(self.run)
        if lost and all(device.node in lost for device in self.problem.devices):
            self.say("all nodes are lost: waiting for one to come back")
        elif lost:
            self._move(lost)
        return bool(lost)

    def _move(self, lost: set[str]) -> None:
        moving = stranded(self.run, lost)
        self.say(f"{', '.join(sorted(lost))} lost: {len(moving)} tasks are planned anew")
        plan = plan_anew(self.problem, self.plan, self.run, lost)
        self.replans += 1
        attempt = self.run.attempts + 1
        orders = orders_of(self.problem, plan, self.file, self.name, image=self.image, attempt=attempt)
        for order in orders:
            if order.task in moving:
                self.run.move(order)
        for each in plan.unplaced:
            self.run.give_up(each.task, each.reason)
        self.plan = plan

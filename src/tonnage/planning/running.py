"""A plan carried out on an engine: jobs are submitted once, in order, and followed until all are over.

Engines that keep a queue get everything at once. For the others, jobs are held back until those before them are over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from tonnage.engines.base import Engine, EngineOptions, JobId, JobState, JobStatus, Queues
from tonnage.engines.deploying import Deployment, Deployments, deploy, end
from tonnage.errors import NotFound
from tonnage.planning.orders import Order

_UNSEEN = JobStatus(state=JobState.PENDING, reason="not submitted yet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """A task with its deployment, once it has one, and how it is."""

    order: Order
    deployment: Deployment | None = None
    status: JobStatus = _UNSEEN
    given_up: bool = False  # no node that is left could run it

    @property
    def task(self) -> str:
        return self.order.task


class Run:
    """The tasks of one plan on one engine."""

    def __init__(
        self, orders: Sequence[Order], engine: Engine, options: EngineOptions, deployments: Deployments | None = None
    ) -> None:
        self.engine, self.options = engine, options
        self.deployments = deployments or Deployments()
        known = {deployment.id: deployment for deployment in self.deployments.all()}
        self.tasks = {order.task: Followed(order=order, deployment=known.get(order.job.name)) for order in orders}

    @property
    def is_over(self) -> bool:
        return all(each.status.state.is_over for each in self.tasks.values())

    def submit(self, say: Callable[[str], None] = lambda text: None) -> list[str]:
        """Whatever may be submitted now and was not before; the tasks' names. If one cannot be, none of them stays."""
        new: list[str] = []
        try:
            for name, each in self.tasks.items():
                if each.deployment is None and not each.status.state.is_over and self._may_start(each):
                    say(f"submitting {name}")
                    self.tasks[name] = replace(each, deployment=self._deploy(each.order))
                    new.append(name)
        except BaseException:
            self._take_back(reversed(new))
            raise
        return new

    def look(self) -> list[Followed]:
        """Ask the engine how all are; those that have changed."""
        changed = []
        for name, each in self.tasks.items():
            if each.deployment is None or each.status.state.is_over:
                continue
            try:
                status = self.engine.state(each.deployment.name_there)
            except NotFound as error:
                status = JobStatus(state=JobState.FAILED, reason=error.message)
            if status != each.status:
                self.tasks[name] = replace(each, status=status)
                changed.append(self.tasks[name])
        return changed

    def move(self, order: Order) -> None:
        """A task runs elsewhere: what there was of it ends, and it waits to be submitted as this order says."""
        old = self.tasks[order.task]
        if old.deployment is not None and end(old.deployment.name_there, self.engine):
            self.deployments.forget(old.deployment)
        self.tasks[order.task] = Followed(order=order)

    def give_up(self, task: str, reason: str) -> None:
        """There is no place left for it."""
        old = self.tasks[task]
        if old.deployment is not None and end(old.deployment.name_there, self.engine):
            self.deployments.forget(old.deployment)
        self.tasks[task] = replace(old, status=JobStatus(state=JobState.FAILED, reason=reason), given_up=True)

    def _may_start(self, each: Followed) -> bool:
        if isinstance(self.engine, Queues):
            return True
        return all(self.tasks[name].status.state.is_over for name in each.order.waits_for if name in self.tasks)

    def _deploy(self, order: Order) -> Deployment:
        after: tuple[JobId, ...] = ()
        if isinstance(self.engine, Queues):
            waits = (self.tasks[name].deployment for name in order.waits_for if name in self.tasks)
            after = tuple(deployment.name_there for deployment in waits if deployment is not None)
        return deploy(replace(order.job, after=after), self.engine, self.options, self.deployments)

    def _take_back(self, names: Iterable[str]) -> None:
        """The last first, so that nothing starts because what it waits for has gone."""
        for name in names:
            each = self.tasks[name]
            assert each.deployment is not None
            if end(each.deployment.name_there, self.engine):  # else it stays written down: submitting again finds it
                self.deployments.forget(each.deployment)
                self.tasks[name] = replace(each, deployment=None, status=_UNSEEN)

"""A plan carried out on an engine: jobs are submitted once, in order, and followed until all are over.

Engines that keep a queue get everything at once. For the others, jobs are held back until those before them are over.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from tonnage.engines.base import Engine, EngineOptions, HoldsGpus, JobId, JobState, JobStatus, Queues, Restarts
from tonnage.engines.deploying import Deployment, Deployments, deploy, end
from tonnage.engines.free_gpus import GpusHeld
from tonnage.errors import NotFound, TonnageError, Unreachable, UsageError
from tonnage.planning.orders import RUN_LABEL, TASK_LABEL, Order, again, attempt_of

_MOST_RESTARTS = 3
_KILLED = {128 + number for number in (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)}
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
        self.tasks: dict[str, Followed] = {}
        self.add(orders)

    @property
    def is_over(self) -> bool:
        return all(each.status.state.is_over for each in self.tasks.values())

    @property
    def attempts(self) -> int:
        """The last that any task is at."""
        made = (attempt_of(each.deployment.labels) for each in self.tasks.values() if each.deployment is not None)
        return max(made, default=0)

    def add(self, orders: Sequence[Order]) -> None:
        """Further tasks. One that was submitted before, even by another command, is followed and not submitted again."""
        known, found = by_task(self.deployments), {}
        for order in orders:
            deployment = known.get((order.job.labels[RUN_LABEL], order.task))
            if deployment is not None and deployment.engine != self.engine.name:
                raise UsageError(
                    f"{order.task} was submitted to {deployment.engine} already",
                    "--run gives this run a name of its own",
                )
            found[order.task] = Followed(order=_as_submitted(order, deployment), deployment=deployment)
        self.tasks |= found

    def submit(
        self, say: Callable[[str], None] = lambda text: None, *, complain: Callable[[str], None] | None = None
    ) -> list[str]:
        """Whatever may be submitted now and was not before; the tasks' names. If one cannot be, none of them stays.

        With `complain`, one that the engine refuses is told of and given up, and the others stay.
        """
        new: list[str] = []
        try:
            for name, each in self.tasks.items():
                if each.deployment is None and not each.status.state.is_over and self._may_start(each):
                    say(f"submitting {name}")
                    new += self._start(each, complain)
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
                status, is_gone = self._ask(each, each.deployment), False
            except NotFound as error:
                status, is_gone = JobStatus(state=JobState.FAILED, reason=error.message), True
            if status == each.status:
                continue
            self.tasks[name] = replace(each, status=status)
            changed.append(self.tasks[name])
            if not is_gone and self._starts_again(self.tasks[name]):
                self.move(again(each.order))
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

    def _ask(self, each: Followed, deployment: Deployment) -> JobStatus:
        """Engines that name devices give those of the plan, and say nothing of them."""
        status = self.engine.state(deployment.name_there)
        if isinstance(self.engine, HoldsGpus) and status.started_at is not None:
            status = replace(status, devices=each.order.places)
        return status if isinstance(self.engine, Restarts) else replace(status, restarts=each.order.attempt)

    def _starts_again(self, each: Followed) -> bool:
        """Killed, and not failed by itself; without an exit code, its end was seen by nobody."""
        if isinstance(self.engine, Restarts) or not each.order.job.requeue or each.status.state is not JobState.FAILED:
            return False
        return each.status.exit_code in (None, *_KILLED) and each.status.restarts < _MOST_RESTARTS

    def _may_start(self, each: Followed) -> bool:
        if isinstance(self.engine, Queues):
            return True
        return all(self.tasks[name].status.state.is_over for name in each.order.waits_for if name in self.tasks)

    def _start(self, each: Followed, complain: Callable[[str], None] | None) -> list[str]:
        """Its name, unless others hold its GPUs: then it waits."""
        try:
            self.tasks[each.task] = replace(each, deployment=self._deploy(each.order))
        except GpusHeld as error:
            self.tasks[each.task] = replace(each, status=replace(_UNSEEN, reason=error.message))
            return []
        except TonnageError as error:
            if complain is None or isinstance(error, Unreachable):
                raise
            complain(f"{each.task} cannot be submitted: {error.message}")
            self.give_up(each.task, error.message)
            return []
        return [each.task]

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


def by_task(deployments: Deployments) -> dict[tuple[str | None, str | None], Deployment]:
    """The last one of each task, by the name of its run and its own."""
    return {(each.labels.get(RUN_LABEL), each.labels.get(TASK_LABEL)): each for each in deployments.all()}


def _as_submitted(order: Order, deployment: Deployment | None) -> Order:
    """What was submitted may be a later attempt, and elsewhere than it is planned now."""
    if deployment is None:
        return order
    return replace(order, job=replace(order.job, name=deployment.id, labels=deployment.labels))

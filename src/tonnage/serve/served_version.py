"""One version of a model that is being served: its queue, its instances, and how they meet.

An instance that is idle takes the next batch from the one queue. A request is answered once: where its instance dies
it runs once more, alone, and fails when that instance dies as well.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from tonnage.serve.answering import Answering
from tonnage.serve.budget import Budget
from tonnage.serve.checking import Checker
from tonnage.serve.configuration import DELAY, ModelConfiguration, QueuePolicy, with_labels, without_labels
from tonnage.serve.errors import Cancelled, InvalidRequest, ServingError, Unavailable
from tonnage.serve.instance_pool import InstancePool, MakeInstance, run_seconds
from tonnage.serve.instance_process import InstancePlace, InstanceProcess, Turn, TurnFailed
from tonnage.serve.ordering import Ordering
from tonnage.serve.queue import Batch, Queue
from tonnage.serve.requests import Request, Response, now
from tonnage.serve.runtimes import LoadOrder
from tonnage.serve.statistics import Statistics
from tonnage.serve.turns import odd_output, outputs_of, tensors_of

log = logging.getLogger("tonnage.serve")
_MOST_TRIES = 2


class ServedVersion:
    """`load` it, `submit` requests, `retire` it."""

    def __init__(
        self,
        configuration: ModelConfiguration,
        version: int,
        backend: str,
        path: Path,
        places: list[InstancePlace],
        *,
        make_instance: MakeInstance,
        budget: Budget | None = None,
    ) -> None:
        self.configuration, self.version = configuration, str(version)
        self.statistics = Statistics()
        self.checker = Checker(configuration)
        self._backend, self._path = backend, path
        self._loop = asyncio.get_running_loop()
        self._queue = Queue(configuration)
        self._answering = Answering(self.statistics, budget or Budget())
        self._answer = self._answering.answer
        self._pool = InstancePool(self, places, self._order_for, run_seconds(configuration), make_instance)
        self._is_planned = False
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = 0.0
        self._is_retired = False
        self._changed = asyncio.Event()

    @property
    def is_ready(self) -> bool:
        return bool(self._pool.all) and not self._is_retired

    @property
    def pids(self) -> list[int]:
        return [instance.pid for instance in self._pool.all]

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def running(self) -> int:
        return len(self._pool.all) - len(self._pool.idle)

    @property
    def restarts(self) -> int:
        return self._pool.restarts

    async def load(self) -> None:
        """Starts all instances and completes the configuration; where one cannot load the model none is left."""
        self.configuration = with_labels(await self._pool.start(), self.configuration)
        self.checker, self._queue = Checker(self.configuration), Queue(self.configuration)
        if self.configuration.batching is not None and self.configuration.batching.preserve_ordering:
            self._answering.ordering = Ordering()

    def submit(self, request: Request) -> None:
        """Its answer comes by `request.answer`. Raises `Busy` or `Unavailable` where it cannot wait here."""
        pool, answering = self._pool, self._answering
        if self._is_retired:
            raise Unavailable(f"version {self.version} of {self.configuration.name} is being unloaded")
        if pool.problem and not pool.all:
            raise self._hopeless()
        try:
            answering.hold(request)
            policy = self._queue.add(request)
        except ServingError as error:
            answering.refuse(request, error)
            raise
        request.holder = self
        if answering.ordering is not None:
            answering.ordering.add(request)
        if policy.timeout_seconds or request.timeout_seconds:
            self._limit(request, policy)
        if pool.idle and not self._is_planned:
            self._is_planned = True
            self._loop.call_soon(self._dispatch)  # after all that has arrived by now

    def cancel(self, request: Request) -> None:
        """Its client has gone: it does not run, if it has not begun."""
        if self._queue.remove(request):
            self._answer(request, Cancelled("the client has gone"))

    async def retire(self) -> None:
        """Takes no more requests, answers those it has, and ends."""
        self._is_retired = True
        self._answering.on_answer = self._changed.set
        while self._queue.waiting or self.running:
            self._changed.clear()
            await self._changed.wait()
        await self.close()

    async def close(self) -> None:
        """Ends everything now; who still waits is told."""
        self._is_retired = True
        if self._timer is not None:
            self._timer.cancel()
        running = [request for instance in self._pool.all for request in _requests(instance)]
        for request in [*running, *self._queue.drain()]:
            self._answer(request, Unavailable(f"{self.configuration.name} was unloaded before this request was done"))
        await self._pool.close()
        self._changed.set()

    # -- instances ----------------------------------------------------------------------------------------------------

    @property
    def needs_instances(self) -> bool:
        return not self._is_retired or self._queue.waiting > 0

    def instance_is_idle(self) -> None:
        self._dispatch()

    def turn_is_done(self, instance: InstanceProcess, result: Turn | TurnFailed) -> None:
        batch: Batch = instance.turn
        instance.turn = None
        self._pool.idle.append(instance)
        if isinstance(result, TurnFailed):
            self._failed(batch, result)
        else:
            self.statistics.ran(batch, result)
            self._answer_all(batch, result)
        if self._queue.waiting:
            self._dispatch()

    def turn_is_lost(self, instance: InstanceProcess) -> None:
        again = []
        for request in _requests(instance):
            request.tries += 1
            if request.tries < _MOST_TRIES:
                again.append(request)
            else:
                told = f"the instance of {self.configuration.name} died, twice, of this request"
                self._answer(request, ServingError(told))
        instance.turn = None
        self._again(again)
        self._changed.set()

    def turn_is_stuck(self, instance: InstanceProcess) -> None:
        for request in _requests(instance):
            told = f"the run of {self.configuration.name} did not end within {run_seconds(self.configuration):g} s"
            self._answer(request, ServingError(told, "set the parameter run_timeout_seconds if it takes so long"))
        instance.turn = None
        self._changed.set()

    def nobody_is_left(self) -> None:
        for request in self._queue.drain():
            self._answer(request, self._hopeless())

    def _hopeless(self) -> Unavailable:
        return Unavailable(f"no instance of {self.configuration.name} can be started: {self._pool.problem}")

    def _order_for(self, place: InstancePlace) -> LoadOrder:
        return LoadOrder(
            backend=self._backend,
            path=str(self._path),
            configuration=without_labels(self.configuration),
            device="cpu" if place.gpu is None else "cuda:0",
            threads=place.threads,
        )

    # -- turns --------------------------------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        self._is_planned = False
        idle = self._pool.idle
        while idle:
            batch = self._queue.next_batch(now())
            if batch is None:
                return
            if isinstance(batch, float):
                self._wake_at(batch)
                return
            self._start(idle.pop(), batch)

    def _wake_at(self, moment: float) -> None:
        if self._timer is not None:
            if self._wakes_at == moment:
                return
            self._timer.cancel()
        self._wakes_at = moment
        self._timer = self._loop.call_later(max(moment - now(), 0.0), self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._dispatch()

    def _start(self, instance: InstanceProcess, batch: Batch) -> None:
        moment = now()
        for request in batch.requests:
            request.started = moment
        instance.turn, instance.since = batch, moment
        try:
            instance.run(*tensors_of(batch))
        except ConnectionError:
            pass  # it has died, which it is about to be found out
        except (OSError, ValueError) as error:  # no memory for its inputs, or no descriptors are left
            log.error("a batch cannot be run", extra={"model": self.configuration.name, "reason": str(error)})
            instance.turn = None
            self._pool.idle.insert(0, instance)
            for request in batch.requests:
                self._answer(request, ServingError(f"{self.configuration.name} cannot be given its inputs: {error}"))

    def _answer_all(self, batch: Batch, turn: Turn) -> None:
        if self.configuration.has_batches and (odd := odd_output(batch, turn)):
            for request in batch.requests:
                self._answer(request, ServingError(f"{self.configuration.name}: {odd}", "set max_batch_size to 0"))
            return
        for request, outputs in zip(batch.requests, outputs_of(batch, turn), strict=True):
            self._answer(request, Response(self.configuration.name, self.version, request.id, outputs))

    def _failed(self, batch: Batch, result: TurnFailed) -> None:
        """Where several ran together each is tried alone: only one of them may be wrong."""
        if len(batch.requests) > 1:
            self._again(batch.requests)
            return
        kind = InvalidRequest if result.is_clients else ServingError
        self._answer(batch.requests[0], kind(f"{self.configuration.name}: {result.message}"))

    def _again(self, requests: list[Request]) -> None:
        """They run next, each alone; those whose time is over do not."""
        moment = now()
        self._queue.put_back([each for each in requests if not each.is_over])
        for request in requests:
            if request.expires and request.expires <= moment:
                self._expire(request)

    # -- answers ------------------------------------------------------------------------------------------------------

    def _limit(self, request: Request, policy: QueuePolicy) -> None:
        """Its waiting ends when its time is over."""
        seconds = policy.timeout_seconds
        if request.timeout_seconds and policy.allow_timeout_override:
            seconds = min(seconds, request.timeout_seconds) if seconds else request.timeout_seconds
        if seconds:
            request.expires = now() + seconds
            request.deadline = self._loop.call_later(seconds, self._expire, request)

    def _expire(self, request: Request) -> None:
        if not request.is_waiting:
            return
        if self.configuration.policy_of(request.priority).timeout_action == DELAY:
            self._queue.delay(request)
            return
        self._queue.remove(request)
        waited = now() - request.arrived
        told = f"the request waited {waited:.3f} s for {self.configuration.name}: too long"
        self._answer(request, Unavailable(told))


def _requests(instance: InstanceProcess) -> list[Request]:
    return instance.turn.requests if instance.turn is not None else []

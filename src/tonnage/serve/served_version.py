"""One version of a model that is being served: its queue, its instances, and how they meet.

An instance that is idle takes the next batch from the one queue. A request is answered once: where its instance dies
it runs once more, alone, and fails when that instance dies as well.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from pathlib import Path

from tonnage.errors import TonnageError
from tonnage.serve.checking import Checker
from tonnage.serve.configuration import ModelConfiguration, with_labels, without_labels
from tonnage.serve.datatypes import Tensor, rows_bytes
from tonnage.serve.errors import InvalidRequest, ServingError, Unavailable
from tonnage.serve.instance_process import InstancePlace, InstanceProcess, Turn, TurnFailed, TurnTensor
from tonnage.serve.queue import Batch, Queue
from tonnage.serve.requests import Answer, Request, Response, now
from tonnage.serve.runtimes import LoadOrder
from tonnage.serve.statistics import BatchStatistics, Statistics

log = logging.getLogger("tonnage.serve")
_LOAD_SECONDS = 600.0
_MOST_TRIES = 2
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 30.0  # between attempts to replace an instance


class ServedVersion:
    """`load` it, `submit` requests, `retire` it."""

    def __init__(
        self, configuration: ModelConfiguration, version: int, backend: str, path: Path, places: list[InstancePlace]
    ) -> None:
        self.configuration, self.version = configuration, str(version)
        self.statistics = Statistics()
        self.checker = Checker(configuration)
        self._backend, self._path, self._places = backend, path, places
        self._loop = asyncio.get_running_loop()
        self._queue = Queue(configuration)
        self._instances: set[InstanceProcess] = set()
        self._idle: list[InstanceProcess] = []
        self._is_planned = False
        self._timer: asyncio.TimerHandle | None = None
        self._is_retired = False
        self._is_empty: asyncio.Event = asyncio.Event()
        self._replacing: set[asyncio.Task[None]] = set()

    @property
    def is_ready(self) -> bool:
        return bool(self._instances) and not self._is_retired

    @property
    def pids(self) -> list[int]:
        return [instance.pid for instance in self._instances]

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def running(self) -> int:
        return len(self._instances) - len(self._idle)

    async def load(self) -> None:
        """Starts all instances and completes the configuration; where one cannot load the model none is left."""
        try:
            found = await asyncio.gather(*(self._add(place) for place in self._places), return_exceptions=True)
            configurations = [each for each in found if isinstance(each, ModelConfiguration)]
            for each in found:
                if isinstance(each, BaseException):
                    raise each
        except BaseException:
            await self.close()
            raise
        self.configuration = with_labels(configurations[0], self.configuration)
        self.checker, self._queue = Checker(self.configuration), Queue(self.configuration)

    def submit(self, request: Request) -> None:
        """Its answer comes by `request.answer`. Raises `Busy` or `Unavailable` where it cannot wait here."""
        if self._is_retired:
            raise Unavailable(f"version {self.version} of {self.configuration.name} is being unloaded")
        self._queue.add(request)
        self._limit(request)
        if self._idle and not self._is_planned:
            self._is_planned = True
            self._loop.call_soon(self._dispatch)  # after all that has arrived by now

    async def retire(self) -> None:
        """Takes no more requests, answers those it has, and ends."""
        self._is_retired = True
        while self._queue.waiting or self.running:
            if not self._instances and not self._replacing:
                break
            self._is_empty.clear()
            await self._is_empty.wait()
        await self.close()

    async def close(self) -> None:
        """Ends everything now; who still waits is told."""
        self._is_retired = True
        for task in self._replacing:
            task.cancel()
        instances = list(self._instances)
        for request in [*self._queue.drain(), *(each for instance in instances for each in _requests(instance))]:
            self._answer(request, Unavailable(f"{self.configuration.name} was unloaded before this request was done"))
        self._instances.clear()
        self._idle.clear()
        for instance in instances:
            instance.close()
        await asyncio.gather(*(instance.reap() for instance in instances))

    # -- instances ----------------------------------------------------------------------------------------------------

    async def _add(self, place: InstancePlace) -> ModelConfiguration:
        order = LoadOrder(
            backend=self._backend,
            path=str(self._path),
            configuration=without_labels(self.configuration),
            device="cpu" if place.gpu is None else "cuda:0",
            threads=place.threads,
        )
        instance = InstanceProcess(order, on_done=self._done, on_end=self._ended, place=place)
        configuration = await instance.start(_LOAD_SECONDS)
        self._instances.add(instance)
        self._idle.append(instance)
        self._dispatch()
        return configuration

    def _ended(self, instance: InstanceProcess) -> None:
        """It died. What it was busy with runs once more, alone."""
        self._instances.discard(instance)
        if instance in self._idle:
            self._idle.remove(instance)
        again = []
        for request in _requests(instance):
            request.tries += 1
            request.key = (id(request),)
            if request.tries < _MOST_TRIES and not request.is_over:
                again.append(request)
            else:
                self._answer(
                    request, ServingError(f"the instance of {self.configuration.name} died, twice, of this request")
                )
        instance.turn = None
        self._queue.put_back(again)
        self.statistics.restarts += 1
        task = self._loop.create_task(self._replace(instance))
        self._replacing.add(task)
        task.add_done_callback(self._replacing.discard)

    async def _replace(self, dead: InstanceProcess) -> None:
        how = await dead.reap()
        log.warning(
            "an instance ended and is replaced", extra={"model": self.configuration.name, "how": how, "pid": dead.pid}
        )
        pause = _FIRST_PAUSE
        while not self._is_retired or self._queue.waiting:
            try:
                await self._add(dead.place)
                return
            except TonnageError as error:
                log.error(
                    "an instance cannot be replaced", extra={"model": self.configuration.name, "reason": error.message}
                )
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    # -- turns --------------------------------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        self._is_planned = False
        while self._idle:
            batch = self._queue.next_batch(now())
            if batch is None:
                return
            if isinstance(batch, float):
                self._wake_at(batch)
                return
            self._start(self._idle.pop(), batch)

    def _wake_at(self, moment: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(max(moment - now(), 0.0), self._dispatch)

    def _start(self, instance: InstanceProcess, batch: Batch) -> None:
        requests, moment = batch.requests, now()
        for request in requests:
            request.started = moment
            if request.deadline is not None:
                request.deadline.cancel()
        first = requests[0]
        tensors: list[TurnTensor]
        if len(requests) == 1:
            tensors = [(each.name, each.datatype, each.shape, (each.data,)) for each in first.inputs]
        else:
            tensors = [
                (each.name, each.datatype, (batch.rows, *each.shape[1:]), [one.inputs[place].data for one in requests])
                for place, each in enumerate(first.inputs)
            ]
        wanted = () if first.outputs is None else tuple(each.name for each in first.outputs)
        instance.turn = batch
        with suppress(ConnectionError):  # it has died; `_ended` is about to be called
            instance.run(tensors, wanted)

    def _done(self, instance: InstanceProcess, result: Turn | TurnFailed) -> None:
        batch: Batch = instance.turn
        instance.turn = None
        self._idle.append(instance)
        if isinstance(result, TurnFailed):
            self._failed(batch, result)
        else:
            self._count(batch, result)
            self._answer_all(batch, result)
        if self._queue.waiting:
            self._dispatch()
        elif self._is_retired:
            self._is_empty.set()

    def _answer_all(self, batch: Batch, turn: Turn) -> None:
        odd = next(
            (out for out in turn.outputs if self.configuration.has_batches and out[2][:1] != (batch.rows,)), None
        )
        if odd is not None:
            told = f"output {odd[0]} has the shape {list(odd[2])} for {batch.rows} rows of inputs"
            for request in batch.requests:
                self._answer(request, ServingError(f"{self.configuration.name}: {told}", "set max_batch_size to 0"))
            return
        for request, outputs in zip(batch.requests, _parts(batch, turn), strict=True):
            self._answer(request, Response(self.configuration.name, self.version, request.id, outputs))

    def _failed(self, batch: Batch, result: TurnFailed) -> None:
        """Where several ran together each is tried alone: only one of them may be wrong."""
        if len(batch.requests) > 1:
            for request in batch.requests:
                request.key = (id(request),)
            self._queue.put_back(batch.requests)
            return
        kind = InvalidRequest if result.is_clients else ServingError
        self._answer(batch.requests[0], kind(f"{self.configuration.name}: {result.message}"))

    # -- answers ------------------------------------------------------------------------------------------------------

    def _limit(self, request: Request) -> None:
        """Its waiting ends when its time is over, where the configuration rejects it then."""
        policy = self.configuration.policy_of(request.priority)
        seconds = policy.timeout_seconds
        if request.timeout_seconds and policy.allow_timeout_override:
            seconds = min(seconds, request.timeout_seconds) if seconds else request.timeout_seconds
        if seconds and policy.timeout_action == "REJECT":
            request.deadline = self._loop.call_later(seconds, self._expire, request)

    def _expire(self, request: Request) -> None:
        if self._queue.remove(request):
            waited = now() - request.arrived
            self._answer(
                request, Unavailable(f"the request waited {waited:.3f} s for {self.configuration.name}: too long")
            )

    def _answer(self, request: Request, answer: Answer) -> None:
        if request.is_over:
            return
        request.is_over = True
        if request.deadline is not None:
            request.deadline.cancel()
        seconds = now() - request.arrived
        if isinstance(answer, ServingError):
            self.statistics.fail.add(seconds * 1e9)
            self.statistics.failures[answer.grpc_status] = self.statistics.failures.get(answer.grpc_status, 0) + 1
        else:
            self.statistics.success.add(seconds * 1e9)
            self.statistics.latencies.add(seconds)
        request.answer(answer)

    def _count(self, batch: Batch, turn: Turn) -> None:
        statistics, count = self.statistics, len(batch.requests)
        statistics.inferences += batch.rows
        statistics.executions += 1
        statistics.last_inference_ms = time.time_ns() // 1_000_000
        for request in batch.requests:
            delay = request.started - request.arrived
            statistics.queue.add(delay * 1e9)
            statistics.queue_delays.add(delay)
        statistics.compute_input.add(turn.input_ns * count, count)
        statistics.compute_infer.add(turn.infer_ns * count, count)
        statistics.compute_output.add(turn.output_ns * count, count)
        sized = statistics.batches.get(batch.rows)
        if sized is None:
            sized = statistics.batches[batch.rows] = BatchStatistics()
        sized.compute_input.add(turn.input_ns)
        sized.compute_infer.add(turn.infer_ns)
        sized.compute_output.add(turn.output_ns)
        statistics.reasons[batch.reason] = statistics.reasons.get(batch.reason, 0) + 1


def _requests(instance: InstanceProcess) -> list[Request]:
    return instance.turn.requests if instance.turn is not None else []


def _parts(batch: Batch, turn: Turn) -> list[list[Tensor]]:
    """The outputs of each request, copied: the next turn takes their place."""
    if len(batch.requests) == 1:
        return [[Tensor(name, kind, shape, bytes(data)) for name, kind, shape, data in turn.outputs]]
    rows = [request.rows for request in batch.requests]
    found: list[list[Tensor]] = [[] for _ in rows]
    for name, kind, shape, data in turn.outputs:
        for each, count, part in zip(found, rows, rows_bytes(kind, shape, data, rows), strict=True):
            each.append(Tensor(name, kind, (count, *shape[1:]), bytes(part)))
    return found

"""The server's side of an instance: starts its process, hands it turns, hears what came of them and that it died."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tonnage.errors import InvalidFile, Unreachable
from tonnage.serve.arena import LARGE_BYTES, SMALL_TURNS, Arena, aligned, roomy
from tonnage.serve.configuration import ModelConfiguration
from tonnage.serve.nursery import Child, Nurseries
from tonnage.serve.runtimes import PACKAGES, LoadOrder
from tonnage.serve.wire import DONE, FAILED, INPUTS, LOAD, OUTPUTS, READY, RUN, Channel, Placed

log = logging.getLogger("tonnage.serve")
# A tensor of a turn: name, datatype, shape, and the buffers that are put behind each other.
TurnTensor: TypeAlias = tuple[str, str, tuple[int, ...], "Sequence[bytes | memoryview]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancePlace:
    """Where an instance runs: on the processor, or on a GPU of this machine."""

    gpu: int | None = None
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Turn:
    """What came of one run: tensors that lie in the arena until the next one, and the nanoseconds of its parts."""

    outputs: list[tuple[str, str, tuple[int, ...], memoryview]]
    input_ns: int
    infer_ns: int
    output_ns: int


@dataclass(frozen=True, slots=True)
class TurnFailed:
    message: str
    is_clients: bool  # the inputs were wrong


class Died(Unreachable):
    """An instance ended while it loaded its model, which may be no fault of the model."""


class InstanceProcess:
    """`on_done` and `on_end` are called from the event loop; `on_end` once, and only after `start` has returned."""

    def __init__(
        self,
        order: LoadOrder,
        *,
        on_done: Callable[[InstanceProcess, Turn | TurnFailed], None],
        on_end: Callable[[InstanceProcess], None],
        place: InstancePlace,
        nurseries: Nurseries,
    ) -> None:
        self.order = order
        self.place = place
        self._nurseries = nurseries
        self._process: Child | None = None  # once it is started
        self.turn: Any = None  # what it is busy with, in the words of its owner
        self.since = 0.0  # when that began, by its owner's clock
        self._on_done, self._on_end = on_done, on_end
        self._loop = asyncio.get_running_loop()
        self._loaded: asyncio.Future[ModelConfiguration] = self._loop.create_future()
        self._inputs: Arena | None = None
        self._outputs: Arena | None = None
        self._small_turns = 0  # in a row, for which the arena is much too large
        self._turns = 0
        self._is_started = False
        self.is_closed = False
        self._channel, self._theirs = Channel.pair()
        self._channel.socket.setblocking(False)
        self._loop.add_reader(self._channel.socket.fileno(), self._readable)

    @property
    def pid(self) -> int:
        """0 before there is a process."""
        return self._process.pid if self._process is not None else 0

    @property
    def has_worked(self) -> bool:
        """It was given a second turn, so that it must have done the first one."""
        return self._turns > 1

    async def start(self, seconds: float) -> ModelConfiguration:
        """Loads and warms the model, and returns its whole configuration. Raises what the instance said, `Died`, or
        `Unreachable` where it took too long."""
        try:
            async with asyncio.timeout(seconds):
                await self._spawn()
                self._channel.send((LOAD, pickle.dumps(self.order)))
                configuration = await self._loaded
            if self.is_closed:
                raise self._death()
        except TimeoutError:
            self._give_up()
            raise Unreachable(f"{self.order.path} was not loaded within {seconds:g} s") from None
        except BaseException:
            self._give_up()
            raise
        self._is_started = True
        return configuration

    def _give_up(self) -> None:
        """Nobody waits for this one any more, so it ends now, in the middle of whatever it does."""
        self.close()
        self.kill()

    def run(self, tensors: list[TurnTensor], wanted: tuple[str, ...]) -> None:
        """One turn; `on_done` tells what came of it. Raises `BrokenPipeError` or the like where the process is gone."""
        placed: list[Placed] = []
        end = 0
        for name, datatype, shape, parts in tensors:
            size = sum(map(len, parts)) if len(parts) > 1 else len(parts[0])
            placed.append((name, datatype, shape, end, size))
            end = aligned(end + size)
        arena = self._inputs
        if arena is None or arena.size < end or (arena.size > LARGE_BYTES and self._is_wasteful(arena, end)):
            arena = self._new_arena(end)
        view = arena.view
        for (_, _, _, place, _), (_, _, _, parts) in zip(placed, tensors, strict=True):
            for part in parts:
                size = len(part)
                view[place : place + size] = part
                place += size
        self._turns += 1
        self._channel.send((RUN, self._turns, [(placed, wanted)]))

    def close(self) -> None:
        """The process sees that its socket is closed and ends; one that does not is killed by `reap`."""
        if self.is_closed:
            return
        self.is_closed = True
        self._loop.remove_reader(self._channel.socket.fileno())
        self._channel.close()
        self._theirs.close()
        for arena in (self._inputs, self._outputs):
            if arena is not None:
                arena.close()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    async def reap(self, seconds: float = 5.0) -> str:
        """Waits for the end of the process, and tells how it ended."""
        if self._process is None:
            return "never started"
        try:
            code = await asyncio.wait_for(self._process.wait(), seconds)
        except TimeoutError:
            self.kill()
            code = await self._process.wait()
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    async def _spawn(self) -> None:
        threads = str(self.order.threads)
        environment = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
        if self.place.gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = str(self.place.gpu)
        package = PACKAGES.get(self.order.backend, "numpy")
        with self._theirs:
            self._process = await self._nurseries.start(package, self._theirs.fileno(), environment)

    def _is_wasteful(self, arena: Arena, size: int) -> bool:
        """A large arena that only one request has needed does not stay for ever."""
        self._small_turns = self._small_turns + 1 if arena.is_wasteful_for(size) else 0
        return self._small_turns >= SMALL_TURNS

    def _new_arena(self, size: int) -> Arena:
        self._small_turns = 0
        arena, descriptor = Arena.make(roomy(size))
        try:
            self._channel.send((INPUTS, arena.size), descriptor)
        finally:
            os.close(descriptor)
        if self._inputs is not None:
            self._inputs.close()
        self._inputs = arena
        return arena

    def _readable(self) -> None:
        try:
            received = self._channel.receive()
        except BlockingIOError:
            return
        except (
            OSError,
            ValueError,
            EOFError,
        ):  # the last two: what it sent is no message, so nothing of it can be trusted
            received = None
        if received is None:
            self._ended()
            return
        message, descriptor = received
        if message[0] == DONE:
            self._on_done(self, self._turn(message[2][0]))
        elif message[0] == OUTPUTS:
            if self._outputs is not None:
                self._outputs.close()
            self._outputs = Arena(descriptor, message[1])
            os.close(descriptor)
        elif self._loaded.done():
            return
        elif message[0] == READY:
            if message[2]:
                log.info("%s runs %s", self.order.configuration.name, message[2])
            self._loaded.set_result(pickle.loads(message[1]))  # from our own process
        elif message[0] == FAILED:
            self._loaded.set_exception(InvalidFile(message[1], message[2]))

    def _turn(self, result: tuple[Any, ...]) -> Turn | TurnFailed:
        if len(result) == 2:
            return TurnFailed(*result)
        placed, input_ns, infer_ns, output_ns = result
        view = self._outputs.view if self._outputs is not None else memoryview(b"")
        outputs = [(name, kind, shape, view[start : start + size]) for name, kind, shape, start, size in placed]
        return Turn(outputs, input_ns, infer_ns, output_ns)

    def _ended(self) -> None:
        self.close()
        if self._is_started:
            self._on_end(self)
        elif not self._loaded.done():
            self._loaded.set_exception(self._death())

    def _death(self) -> Died:
        return Died(f"the instance of {self.order.path} died while it loaded the model")

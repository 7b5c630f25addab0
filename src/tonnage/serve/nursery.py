"""The server's side of nurseries, from which all instances come: one process for each package that they need."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any

from tonnage.errors import Unreachable
from tonnage.serve.wire import START, STARTED, Channel

_END_SECONDS = 5.0


class Child:
    """The process of an instance. Its nursery waits for its end and tells it."""

    def __init__(self, pid: int, handle: int) -> None:
        self.pid = pid
        self._handle = handle  # which, other than the number, never means another process
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def is_over(self) -> bool:
        return self._ended.done()

    def kill(self) -> None:
        if not self.is_over:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    async def wait(self) -> int:
        """Its exit code; of a signal, that number below zero."""
        return await asyncio.shield(self._ended)

    def end(self, code: int) -> None:
        if not self.is_over:
            self._ended.set_result(code)
            os.close(self._handle)


class Nurseries:
    """By package; each begins with the first instance that needs it."""

    def __init__(self) -> None:
        self._nurseries: dict[str, _Nursery] = {}

    async def start(self, package: str, descriptor: int, environment: dict[str, str]) -> Child:
        """An instance at the other end of this socket. Raises `Unreachable` where no process can be had."""
        nursery = self._nurseries.get(package)
        if nursery is None or nursery.is_closed:
            nursery = self._nurseries[package] = _Nursery(package)
        return await nursery.start(descriptor, environment)

    async def close(self) -> None:
        await asyncio.gather(*(each.end() for each in self._nurseries.values()))


class _Nursery:
    def __init__(self, package: str) -> None:
        self.is_closed = False
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count()
        self._starting: dict[int, asyncio.Future[Child]] = {}
        self._children: dict[int, Child] = {}  # by process id
        self._channel, theirs = Channel.pair()
        self._channel.socket.setblocking(False)
        # Libraries that make threads when they are imported would leave them behind in the nursery.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        end = theirs.fileno()
        command = [sys.executable, "-m", "tonnage.serve.start_nursery", str(end), str(os.getpid()), package]
        try:
            self._process = subprocess.Popen(
                command, pass_fds=[end], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment,
                start_new_session=True,  # a Ctrl-C is for the server
            )  # fmt: skip
        except BaseException:
            self._channel.close()
            raise
        finally:
            theirs.close()
        self._loop.add_reader(self._channel.socket.fileno(), self._readable)

    async def start(self, descriptor: int, environment: dict[str, str]) -> Child:
        number = next(self._numbers)
        started: asyncio.Future[Child] = self._loop.create_future()
        self._starting[number] = started
        try:
            self._channel.send((START, number, environment), descriptor)
        except OSError as error:
            del self._starting[number]
            raise Unreachable(f"no instance can be started: {error.strerror}") from None
        return await started

    async def end(self) -> None:
        """With all instances that it still has."""
        self._close()
        waiting = asyncio.to_thread(self._process.wait, _END_SECONDS)
        try:
            await waiting
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)

    def _readable(self) -> None:
        try:
            received = self._channel.receive()
        except BlockingIOError:
            return
        except (OSError, ValueError, EOFError):
            received = None
        if received is None:
            self._close()
            self._loop.run_in_executor(None, self._process.wait)
        elif received[0][0] == STARTED:
            self._started(*received)
        else:
            _, pid, code = received[0]
            self._children.pop(pid).end(code)

    def _started(self, message: tuple[Any, ...], handle: int) -> None:
        _, number, pid, problem = message
        started = self._starting.pop(number)
        if problem:
            if not started.done():
                started.set_exception(Unreachable(f"no instance can be started: {problem}"))
            return
        child = self._children[pid] = Child(pid, handle)
        if started.done():  # nobody waits for it any more
            child.kill()
        else:
            started.set_result(child)

    def _close(self) -> None:
        """It is gone, or shall go; its instances die with it."""
        if self.is_closed:
            return
        self.is_closed = True
        self._loop.remove_reader(self._channel.socket.fileno())
        self._channel.close()
        for started in self._starting.values():
            if not started.done():
                started.set_exception(Unreachable("no instance can be started: the process that starts them has ended"))
        for child in self._children.values():
            child.end(-signal.SIGKILL)

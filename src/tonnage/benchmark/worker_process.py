"""The runner's side of the measuring process: starts it, gives it orders, notices when it dies or takes too long."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing import Pipe
from types import TracebackType
from typing import Self

from tonnage.benchmark.messages import Answer, Begun, Broken, Finished, Order, Ready, Refused
from tonnage.benchmark.results import Measured
from tonnage.store.rows import Environment

WORKER = (sys.executable, "-m", "tonnage.benchmark.worker")
START_SECONDS = 300.0  # torch from a cold network disk
_LOOK_SECONDS = 0.1  # how often the wish to stop is looked at
_PATIENCE_SECONDS = 5.0  # for a process that was asked to end


class Died(Exception):
    """The process is gone. `key` is the job that had begun, None if it was none in particular."""

    def __init__(self, reason: str, key: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.key = key


class Stopped(Exception):
    """Somebody wishes to stop; the process has been ended."""


class WorkerProcess:
    """A running measuring process; a context manager that ends it."""

    def __init__(
        self, device: str, gpu_index: int, *, should_stop: Callable[[], bool], command: Sequence[str] = WORKER
    ) -> None:
        self._should_stop = should_stop
        self._pipe, theirs = Pipe()
        # A file and not a pipe: nobody reads while it runs, and a full pipe would stop it.
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`
        self._process = subprocess.Popen(
            [*command, str(theirs.fileno()), device, str(gpu_index)],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self._complaints,
            stderr=self._complaints,
            start_new_session=True,  # Ctrl-C is for the runner alone
        )
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    @property
    def pid(self) -> int:
        return self._process.pid

    def environment(self) -> Environment:
        """Wait until it is ready; raises `Died`, `Stopped`, or what it refuses to do."""
        answer = self._answer(time.monotonic() + START_SECONDS, None, START_SECONDS)
        if isinstance(answer, Refused):
            raise answer.error()
        assert isinstance(answer, Ready), answer
        return answer.environment

    def measure(self, order: Order, limit_seconds: float, begun: Callable[[str], None]) -> tuple[Measured, ...]:
        """All results of an order; raises `Died`, also if a job takes longer than the limit, or `Stopped`."""
        key: str | None = None
        try:
            self._pipe.send(order)
        except OSError:
            raise Died(self._last_words()) from None
        while True:
            answer = self._answer(time.monotonic() + limit_seconds, key, limit_seconds)
            if isinstance(answer, Finished):
                return answer.results
            if isinstance(answer, Broken):
                raise Died(answer.reason, key)
            assert isinstance(answer, Begun), answer
            key = answer.key
            if key is not None:
                begun(key)

    def _answer(self, deadline: float, key: str | None, limit_seconds: float) -> Answer:
        try:
            while not self._pipe.poll(_LOOK_SECONDS):
                if self._should_stop():
                    self._kill()
                    raise Stopped
                if time.monotonic() > deadline:
                    self._kill()
                    raise Died(f"took longer than {limit_seconds:g} s", key)
            answer: Answer = self._pipe.recv()
        except (EOFError, OSError):
            raise Died(self._last_words(), key) from None
        return answer

    def _last_words(self) -> str:
        """How it ended, and the last line that it left."""
        try:
            code = self._process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._kill()
            return "the measuring process closed its pipe"
        self._complaints.seek(0)
        lines = self._complaints.read().decode(errors="replace").strip().splitlines()
        return f"the measuring process {_ending(code)}" + (f": {lines[-1].strip()}" if lines else "")

    def end(self) -> None:
        """Ask it to end by closing the pipe, then make it; may be repeated."""
        self._pipe.close()
        try:
            self._process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._kill()
        self._complaints.close()

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait()


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
    memory = " (perhaps for want of memory on the host)" if -code == signal.SIGKILL else ""
    return f"was ended by {name}{memory}"

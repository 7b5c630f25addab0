"""The controlling side of a run: starts the workers, hears them, and ends all of them when one is lost or silent."""

from __future__ import annotations

import queue
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from tonnage.errors import Refused, TonnageError, Unreachable
from tonnage.stages.hosts import LostWorkers, StageHost, Timeouts
from tonnage.stages.launchers import Launcher
from tonnage.stages.wire import Connection, Listener, Received
from tonnage.stages.worker_names import TOKEN, WORKER

_TICK_SECONDS = 0.2
_BEAT_SECONDS, _BEATS = 1.0, 5  # between signs of life; at least so many in the time after which one counts as silent
_GRACE_SECONDS = 0.5  # in which others may tell what is behind the first bad news


@dataclass
class Seen:
    """What is known of a worker."""

    connection: Connection | None = None
    last_sign: float = 0.0
    doing: str = "starting"
    is_computing: bool = False
    computing_since: float = 0.0
    steps: int = -1


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a worker said; `received` is None when its connection was lost."""

    device: str
    received: Received | None


@dataclass
class Controller:
    """Use it in a `with`: whatever happens, no worker is left behind."""

    hosts: Sequence[StageHost]
    launcher: Launcher
    timeouts: Timeouts
    say: Callable[[str], None] = lambda text: None
    token: str = field(default_factory=lambda: secrets.token_hex(32))

    def __post_init__(self) -> None:
        self.seen = {host.device: Seen() for host in self.hosts}
        self._events: queue.Queue[Event] = queue.Queue()
        self._is_over = False
        self._moved = self._checked = time.monotonic()
        self._folder = ""

    def __enter__(self) -> Controller:
        self._listener = Listener(self._control_address(), self.token, self.timeouts.stall_seconds)
        try:
            threading.Thread(target=self._accept, daemon=True).start()
            for host in self.hosts:
                self.launcher.start(host, self._arguments(host), {TOKEN: self.token})
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(is_failure=error is not None)

    # -- talking ----------------------------------------------------------------------------------------------------------

    def gather(self, kind: str, seconds: float) -> dict[str, Received]:
        """One message of this kind from each worker."""
        found: dict[str, Received] = {}
        deadline = time.monotonic() + seconds
        while len(found) < len(self.seen):
            event = self.next_event(deadline, f"{kind!r} within {seconds:g} s", set(self.seen) - set(found))
            if event.received is not None and event.received.header["kind"] == kind:
                found[event.device] = event.received
        return found

    def send(self, device: str, header: dict[str, Any], value: Any = None) -> None:
        connection = self.seen[device].connection
        assert connection is not None
        try:
            connection.send(header, value)
        except TonnageError:
            self._explain(Event(device, None))

    def next_event(self, deadline: float, what: str, missing: set[str]) -> Event:
        """The next thing that a worker says other than a sign of life; raises when one is lost, silent or too late."""
        since = time.monotonic()
        while True:
            if time.monotonic() - self._checked > _TICK_SECONDS:
                self._check(since, deadline, what, missing)
            with suppress(queue.Empty):
                event = self._events.get(timeout=_TICK_SECONDS)
                if event.received is None or event.received.header["kind"] == "failed":
                    self._explain(event)
                return event

    def next_result(self) -> Event:
        """The next output or the like; raises when nothing moves any more."""
        return self.next_event(float("inf"), "", set())

    # -- inside -----------------------------------------------------------------------------------------------------------

    def _control_address(self) -> str:
        if self.launcher.control != "unix:":
            return f"{self.launcher.control}:0"
        self._folder = tempfile.mkdtemp(prefix="tonnage-")
        return f"unix:{Path(self._folder, 'control')}"

    def _arguments(self, host: StageHost) -> tuple[str, ...]:
        return (
            "-m", WORKER, "--device", host.device, "--controller", self._listener.address, "--address", host.address,
            "--torch-device", host.torch_device, "--threads", str(host.threads), "--pace", f"{host.pace:g}",
            "--beat-seconds", f"{min(_BEAT_SECONDS, self.timeouts.silence_seconds / _BEATS):g}",
        )  # fmt: skip

    def _accept(self) -> None:
        while not self._is_over:
            try:
                connection = self._listener.accept(_TICK_SECONDS)
            except Refused as error:
                self.say(error.message)
                continue
            except OSError:
                return
            if connection is not None:
                threading.Thread(target=self._hear, args=(connection,), daemon=True).start()

    def _hear(self, connection: Connection) -> None:
        """All that one worker says. A worker that has died closes its connection."""
        device = ""
        try:
            hello = connection.receive()
            device = hello.header["name"]
            if device not in self.seen or self.seen[device].connection is not None:
                connection.close()
                return
            self.seen[device].connection = connection
            received = hello
            while True:
                if self._is_news(self.seen[device], received):
                    self._events.put(Event(device, received))
                received = connection.receive()
        except TonnageError:
            if device and not self._is_over:
                self._events.put(Event(device, None))

    def _is_news(self, seen: Seen, received: Received) -> bool:
        """Signs of life are only noted, when they come."""
        header, now = received.header, time.monotonic()
        seen.last_sign = now
        if header["kind"] != "alive":
            self._moved = now
            return True
        if header["steps"] != seen.steps or not header["is_computing"]:
            seen.computing_since = now
        if header["steps"] != seen.steps or header["is_computing"]:
            self._moved = now
        seen.doing, seen.steps, seen.is_computing = header["doing"], header["steps"], header["is_computing"]
        return False

    def _check(self, since: float, deadline: float, what: str, missing: set[str]) -> None:
        """Called several times a second while something is waited for, since then."""
        self._checked = now = time.monotonic()
        for device, seen in self.seen.items():
            if seen.connection is None and (how := self.launcher.ended(device)):
                raise LostWorkers(f"the worker of {device} ended before it said a word: {how}", [device])
            if seen.last_sign and now - seen.last_sign > self.timeouts.silence_seconds:
                silent = f"{device} gave no sign of life for {now - seen.last_sign:.0f} s; it was {seen.doing}"
                raise LostWorkers(silent, [device])
            if seen.is_computing and now - seen.computing_since > self.timeouts.compute_seconds:
                raise LostWorkers(f"{device} has been {seen.doing} for {now - seen.computing_since:.0f} s", [device])
        if now > deadline:
            # Who is there and late may be waiting for somebody who never came.
            absent = sorted(device for device in missing if self.seen[device].connection is None)
            raise LostWorkers(f"no {what} from {', '.join(sorted(missing))}", absent)
        quiet = now - max(self._moved, since)
        if deadline == float("inf") and quiet > self.timeouts.stall_seconds:
            doing = "; ".join(f"{device} was {seen.doing}" for device, seen in self.seen.items())
            raise Unreachable(f"nothing moved for {quiet:.0f} s: {doing}", "a link may be down")

    def _explain(self, first: Event) -> None:
        """Of all bad news that come at once, the cause: who died is to blame before those who miss it."""
        events, end = [first], time.monotonic() + _GRACE_SECONDS
        while (rest := end - time.monotonic()) > 0:
            with suppress(queue.Empty):
                event = self._events.get(timeout=rest)
                if event.received is None or event.received.header["kind"] == "failed":
                    events.append(event)
        told = {event.device: event.received.header for event in events if event.received is not None}
        for event in events:
            if event.received is None and event.device not in told:
                raise LostWorkers(self._died(event.device), [event.device])
        for device, header in sorted(told.items(), key=lambda item: item[1]["is_peer"]):
            kind = Unreachable if header["is_peer"] else TonnageError
            raise kind(f"{device} failed while {header['doing']}: {header['message']}", header["hint"])

    def _died(self, device: str) -> str:
        how = self.launcher.ended(device)
        return f"the worker of {device} died while {self.seen[device].doing}" + (f" ({how})" if how else "")

    def _end(self, *, is_failure: bool = True) -> None:
        self._is_over = True
        self._listener.close()
        for seen in self.seen.values():
            if seen.connection is not None:
                seen.connection.close()
        try:
            self.launcher.stop(0.0 if is_failure else self.timeouts.stop_seconds)
        finally:
            if self._folder:
                shutil.rmtree(self._folder, ignore_errors=True)

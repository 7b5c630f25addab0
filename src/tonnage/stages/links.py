"""Between workers: a queue and a thread for each neighbour that is sent to, so that transfers overlap with computing."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tonnage.errors import Refused, TonnageError, Unreachable
from tonnage.stages.wire import Closed, Connection, Listener, Received, connect

_WAITING = 256  # messages in a queue before who computes must wait
_TICK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message from `source`: another device, or the controller."""

    source: str
    kind: str
    number: int  # of a sample, or of a step
    name: str
    value: Any
    nbytes: int = 0
    seconds: float = 0.0


@dataclass
class Inbox:
    """All that reaches a worker, in one queue; also the bad news."""

    arrivals: queue.Queue[Arrival | TonnageError] = field(default_factory=queue.Queue)

    def put(self, source: str, received: Received) -> None:
        header = received.header
        self.arrivals.put(
            Arrival(
                source, header["kind"], header.get("number", 0), header.get("name", ""),
                received.value, received.nbytes, received.seconds,
            )
        )  # fmt: skip

    def fail(self, error: TonnageError) -> None:
        self.arrivals.put(error)


class Links(Protocol):
    """A transport. `offer` is told to all others, who `join` with what they were told."""

    @property
    def bytes_moved(self) -> int: ...  # so far, also of messages that are not complete

    def offer(self) -> str: ...

    def join(self, offers: Mapping[str, str]) -> None: ...

    def send(self, device: str, header: dict[str, Any], value: Any) -> None: ...

    def close(self) -> None: ...


class Outbox:
    """Messages for one neighbour, sent in order by a thread of its own."""

    def __init__(self, device: str, deliver: Callable[[dict[str, Any], Any], object], inbox: Inbox) -> None:
        self._device, self._deliver, self._inbox = device, deliver, inbox
        self._queue: queue.Queue[tuple[dict[str, Any], Any] | None] = queue.Queue(_WAITING)
        self._thread = threading.Thread(target=self._run, name=f"to {device}", daemon=True)
        self._thread.start()

    def put(self, header: dict[str, Any], value: Any, seconds: float) -> None:
        try:
            self._queue.put((header, value), timeout=seconds)
        except queue.Full:
            raise Unreachable(f"{self._device} took no message for {seconds:g} s") from None

    def close(self, seconds: float) -> None:
        """When all is sent."""
        self._queue.put(None, timeout=seconds)
        self._thread.join(seconds)

    def _run(self) -> None:
        try:
            while (message := self._queue.get()) is not None:
                self._deliver(*message)
        except TonnageError as error:
            self._inbox.fail(_lost(self._device, "sending to", error))


class SocketLinks:
    """One TCP connection for each ordered pair of devices."""

    def __init__(
        self,
        device: str,
        address: str,
        token: str,
        *,
        targets: Sequence[str],
        sources: Sequence[str],
        inbox: Inbox,
        seconds: float,
        stall_seconds: float,
    ) -> None:
        self._device, self._token, self._inbox = device, token, inbox
        self._targets, self._sources = targets, set(sources)
        self._seconds, self._stall_seconds = seconds, stall_seconds
        self._listener = Listener(f"{address}:0", token, stall_seconds)
        self._outboxes: dict[str, Outbox] = {}
        self._connections: list[Connection] = []
        self._joined = threading.Event()
        threading.Thread(target=self._accept, name="neighbours", daemon=True).start()

    @property
    def bytes_moved(self) -> int:
        return sum(connection.bytes_moved for connection in self._connections)

    def offer(self) -> str:
        return self._listener.address

    def join(self, offers: Mapping[str, str]) -> None:
        """Connect to all that this one sends to, and wait for all that send to it."""
        for target in self._targets:
            connection = connect(offers[target], self._token, seconds=self._seconds, stall_seconds=self._stall_seconds)
            connection.send({"kind": "from", "name": self._device})
            self._connections.append(connection)
            self._outboxes[target] = Outbox(target, connection.send, self._inbox)
        if self._sources and not self._joined.wait(self._seconds):
            raise Unreachable(f"{', '.join(sorted(self._sources))} did not connect within {self._seconds:g} s")

    def send(self, device: str, header: dict[str, Any], value: Any) -> None:
        self._outboxes[device].put(header, value, self._stall_seconds)

    def close(self) -> None:
        for outbox in self._outboxes.values():
            outbox.put({"kind": "end"}, None, self._stall_seconds)
            outbox.close(self._stall_seconds)
        self._listener.close()

    def _accept(self) -> None:
        """Strangers are turned away, and the wait for those who belong here goes on."""
        while self._sources:
            try:
                connection = self._listener.accept(_TICK_SECONDS)
            except Refused:
                continue
            except OSError:
                return  # closed
            if connection is not None:
                source = connection.receive().header["name"]
                self._connections.append(connection)
                threading.Thread(
                    target=self._receive, args=(source, connection), name=f"from {source}", daemon=True
                ).start()
                self._sources.discard(source)
        self._joined.set()

    def _receive(self, source: str, connection: Connection) -> None:
        try:
            while (received := connection.receive()).header["kind"] != "end":
                pass_on(self, received)
                self._inbox.put(source, received)
        except TonnageError as error:
            self._inbox.fail(_lost(source, "receiving from", error))


def pass_on(links: Links, received: Received) -> None:
    """To the next device that reads the same value, before anything is done with it here."""
    onward = received.header.get("onward")
    if onward:
        header = {key: received.header[key] for key in ("kind", "number", "name")}
        links.send(onward[0], {**header, "onward": onward[1:]}, received.value)


class LostPeer(Unreachable):
    """A neighbour is gone or silent; who is to blame, the controller knows better."""


def _lost(device: str, doing: str, error: TonnageError) -> TonnageError:
    if isinstance(error, Closed | Unreachable):
        return LostPeer(f"{doing} {device}: {error.message}")
    return error

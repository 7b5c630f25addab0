"""Bandwidth and round trip of one connection: what both of its ends do."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass

MOST_SECONDS = 10.0  # of one transfer
MOST_BYTES = 16 * 2**30  # of one transfer
MOST_ECHOES = 1000
_CHUNK_BYTES = 256 * 1024
_UNSENT_BYTES = 128 * 1024
_DRAIN_SECONDS = 30.0  # for what is on its way over a slow link when the time is over
# The part of a transfer that counts. Before it TCP finds its speed; after it another one that began at the same time,
# give or take, may have ended.
_FIRST_SHARE, _LAST_SHARE = 0.25, 0.75


@dataclass(frozen=True, slots=True)
class Arrived:
    """What the receiver saw, once the transfer was under way."""

    nbytes: int
    seconds: float

    @property
    def bytes_second(self) -> float:
        return self.nbytes / self.seconds


def send_for(connection: socket.socket, seconds: float) -> None:
    """As much as goes through in that time; the end of the stream tells the receiver that this was all."""
    _keep_little_unsent(connection)
    chunk, sent = bytes(_CHUNK_BYTES), 0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end and sent < MOST_BYTES:
        sent += connection.send(chunk)
    connection.shutdown(socket.SHUT_WR)


def receive_for(connection: socket.socket, seconds: float) -> Arrived:
    """Reads to the end; counts the middle half of the time, by the clock of the receiver."""
    buffer = bytearray(_CHUNK_BYTES)
    began: float | None = None
    first = last = (0.0, 0)
    total = 0
    while count := connection.recv_into(buffer):
        now = time.perf_counter()
        began = now if began is None else began
        total += count
        if total > MOST_BYTES + _CHUNK_BYTES:
            raise ValueError(f"more than {MOST_BYTES} bytes came")
        if now - began > seconds + _DRAIN_SECONDS:
            raise ValueError(f"a transfer of {seconds:g} s did not end within {_DRAIN_SECONDS:g} s more")
        if now - began <= seconds * _FIRST_SHARE or first == (0.0, 0):
            first = now, total
        if now - began <= seconds * _LAST_SHARE or last[1] <= first[1]:
            last = now, total
    if last[1] <= first[1] or last[0] <= first[0]:
        raise ValueError("too little came in the time to measure a bandwidth")
    return Arrived(last[1] - first[1], last[0] - first[0])


def round_trips(connection: socket.socket, count: int) -> list[float]:
    """Seconds of each: one byte there and back."""
    found = []
    for _ in range(count):
        began = time.perf_counter()
        connection.sendall(b"x")
        if not connection.recv(1):
            raise ConnectionError("the connection ended too early")
        found.append(time.perf_counter() - began)
    return found


def echo(connection: socket.socket, count: int) -> None:
    for _ in range(count):
        part = connection.recv(1)
        if not part:
            return
        connection.sendall(part)


def _keep_little_unsent(connection: socket.socket) -> None:
    """Else the kernel buffers seconds of a slow link, and the transfer ends long after it should."""
    option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
    if option is not None:
        connection.setsockopt(socket.IPPROTO_TCP, option, _UNSENT_BYTES)

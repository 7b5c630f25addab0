"""Messages between Tonnage and the process that it profiles: one JSON object a line, both ways, over a pair of sockets."""

from __future__ import annotations

import contextlib
import json
import select
import socket
from typing import Any

Message = dict[str, Any]


class Channel:
    """One end. Sending never fails: whether the other side still listens is not the sender's business."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._buffer = b""

    def send(self, message: Message) -> None:
        with contextlib.suppress(OSError):
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, timeout_seconds: float | None = None) -> Message | None:
        """The next message; None if none came in time. Raises `EOFError` when the other end is closed."""
        while b"\n" not in self._buffer:
            if timeout_seconds is not None and not select.select([self._socket], [], [], timeout_seconds)[0]:
                return None
            try:
                chunk = self._socket.recv(1 << 16)
            except OSError:
                chunk = b""
            if not chunk:
                raise EOFError
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: Message = json.loads(line)
        return message

    def close(self) -> None:
        self._socket.close()


def channel_pair() -> tuple[Channel, socket.socket]:
    """Our end, and the other one to be inherited."""
    ours, theirs = socket.socketpair()
    return Channel(ours), theirs


def inherited_channel(number: int) -> Channel:
    connection = socket.socket(fileno=number)
    connection.set_inheritable(False)  # not for what the program starts
    return Channel(connection)

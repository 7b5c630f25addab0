"""What a server and an instance, or a nursery, say to each other over a socket that keeps messages apart.

Tensors are in the arenas; a message says where. Both ends are the same program on the same machine, so Python's own
fast format for plain values is used, and it never reads what a client sent.
"""

from __future__ import annotations

import array
import marshal
import os
import socket
from typing import Any, TypeAlias

# LOAD: what to load, from the server. READY: what it is, from the instance. RUN and DONE: one turn. INPUTS and OUTPUTS:
# a new arena comes with its descriptor. FAILED: the model cannot be loaded.
LOAD, READY, RUN, DONE, INPUTS, OUTPUTS, FAILED = range(7)
# To a nursery, START: an instance with the descriptor of its socket. From it, STARTED: its process id and a descriptor of
# it, or why there is none. ENDED: its exit code.
START, STARTED, ENDED = range(3)
_MOST_BYTES = 1 << 16  # of one message; a longer one, such as a configuration with many labels, comes as a file
_ANCILLARY_BYTES = socket.CMSG_SPACE(4)

# Name, datatype, shape, offset and bytes in an arena.
Placed: TypeAlias = "tuple[str, str, tuple[int, ...], int, int]"


class Channel:
    """One end of the socket."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self._buffer = bytearray(_MOST_BYTES)
        self._views = [memoryview(self._buffer)]

    @classmethod
    def pair(cls) -> tuple[Channel, socket.socket]:
        """This process's end, and the socket for the other."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(ours), theirs

    def send(self, message: tuple[Any, ...], descriptor: int | None = None) -> None:
        body = marshal.dumps(message)
        if descriptor is not None:
            socket.send_fds(self.socket, [body], [descriptor])
        elif len(body) <= _MOST_BYTES:
            self.socket.send(body)
        else:
            self._send_as_file(body)

    def receive(self) -> tuple[tuple[Any, ...], int] | None:
        """A message and the descriptor that came with it, else -1; None when the other end is gone."""
        size, ancillary, _, _ = self.socket.recvmsg_into(self._views, _ANCILLARY_BYTES)
        descriptor = array.array("i", ancillary[0][2])[0] if ancillary else -1
        if not size:
            if descriptor >= 0:
                os.close(descriptor)
            return None
        message: Any = marshal.loads(self._views[0][:size])
        if type(message) is int:
            message, descriptor = marshal.loads(_content(descriptor, message)), -1
        return message, descriptor

    def close(self) -> None:
        self.socket.close()

    def _send_as_file(self, body: bytes) -> None:
        """Its size is the message."""
        descriptor = os.memfd_create("tonnage-message", os.MFD_CLOEXEC)
        with open(descriptor, "wb") as file:
            file.write(body)
            file.flush()
            socket.send_fds(self.socket, [marshal.dumps(len(body))], [descriptor])


def _content(descriptor: int, size: int) -> bytes:
    with open(descriptor, "rb") as file:
        file.seek(0)  # both ends share its place
        return file.read(size)

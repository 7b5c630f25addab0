"""What a server and an instance say to each other over a socket that keeps messages apart.

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
_MOST_BYTES = 1 << 18

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
        if descriptor is None:
            self.socket.send(body)
        else:
            socket.send_fds(self.socket, [body], [descriptor])

    def receive(self) -> tuple[tuple[Any, ...], int] | None:
        """A message and the descriptor that came with it, else -1; None when the other end is gone."""
        size, ancillary, _, _ = self.socket.recvmsg_into(self._views, socket.CMSG_LEN(4))
        descriptor = array.array("i", ancillary[0][2])[0] if ancillary else -1
        if not size:
            if descriptor >= 0:
                os.close(descriptor)
            return None
        message: tuple[Any, ...] = marshal.loads(self._views[0][:size])
        return message, descriptor

    def close(self) -> None:
        self.socket.close()

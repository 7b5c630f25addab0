"""One port that speaks HTTP: its connections, what they share, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from tonnage.serve.errors import ServingError
from tonnage.serve.http_connection import HttpConnection
from tonnage.serve.http_messages import Handler, Headers, HttpLimits
from tonnage.serve.request_log import RequestLog


@dataclass(slots=True)
class HttpServer:
    """What the connections of one port share."""

    handle: Handler
    refuse: Callable[[ServingError], tuple[int, Headers, bytes]]  # for what is wrong with HTTP itself
    limits: HttpLimits = field(default_factory=HttpLimits)
    log: RequestLog = field(default_factory=RequestLog)
    connections: set[HttpConnection] = field(default_factory=set)
    held_bytes: int = 0  # of requests that are not answered, and of answers that are not read
    is_draining: bool = False

    def connection(self) -> HttpConnection:
        return HttpConnection(self)

    def sweep(self, now: float) -> None:
        """Ends connections that take too long; to be called about once a second."""
        for connection in list(self.connections):
            connection.check_time(now)

    async def drain(self) -> None:
        """Each connection ends with the answer that it waits for, or when nothing has come for a moment."""
        self.is_draining = True
        clock = asyncio.get_running_loop().time
        while self.connections:
            for connection in list(self.connections):
                connection.close_if_idle(clock())
            await asyncio.sleep(0.02)

    def abort(self) -> None:
        for connection in list(self.connections):
            connection.abort()

"""HTTP/1.1 for servers that answer tens of thousands of small requests a second: a thin layer over httptools' parser.

Requests of a connection are answered in their order, one at a time. What a connection may hold and how long it may
take is limited.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Protocol, TypeAlias, cast

import httptools

from tonnage.serve.errors import InvalidRequest, ServingError, TooLarge, TooSlow

_HEAD = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
_MOST_HEADER_BYTES = 64 << 10
_MOST_PIPELINED = 8


@dataclass(frozen=True, slots=True)
class HttpLimits:
    most_body_bytes: int = 1 << 30
    request_seconds: float = 60.0  # from its first byte to its last
    idle_seconds: float = 300.0  # between two requests
    write_seconds: float = 60.0  # in which a client reads nothing of its answer
    most_connections: int = 10_000


@dataclass(slots=True)
class HttpRequest:
    """`headers` have names in lower case."""

    method: str
    path: str
    query: str
    headers: dict[bytes, bytes]
    body: bytes | bytearray
    client: str


Headers: TypeAlias = Mapping[str, str]


class Reply(Protocol):
    def __call__(self, status: int, headers: Headers, *parts: bytes | memoryview) -> None: ...


Handler: TypeAlias = Callable[[HttpRequest, Reply], None]


@dataclass(slots=True)
class HttpServer:
    """What the connections of one port share."""

    handle: Handler
    refuse: Callable[[ServingError], tuple[int, Headers, bytes]]  # for what is wrong with HTTP itself
    limits: HttpLimits = field(default_factory=HttpLimits)
    connections: set[HttpConnection] = field(default_factory=set)
    is_draining: bool = False

    def connection(self) -> HttpConnection:
        return HttpConnection(self)

    def sweep(self, now: float) -> None:
        """Ends connections that take too long; to be called about once a second."""
        for connection in list(self.connections):
            connection.check_time(now)

    def drain(self) -> None:
        """Each connection ends with the answer that it waits for, or now."""
        self.is_draining = True
        for connection in list(self.connections):
            connection.close_if_idle()

    async def idle(self) -> None:
        """Waits until all connections have ended."""
        while self.connections:
            await asyncio.sleep(0.02)


class HttpConnection(asyncio.Protocol):
    """One client."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._parser = httptools.HttpRequestParser(self)
        self._client = ""
        self._begin()
        self._waiting: deque[tuple[HttpRequest, bool]] = deque()
        self._is_busy = False  # a request is being answered
        self._keeps = True
        self._since = self._loop.time()  # of the state that it is in
        self._in_request = False
        self._is_paused = False
        self._paused_since = 0.0

    # -- asyncio ------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own is none by class
        if len(self._server.connections) >= self._server.limits.most_connections:
            transport.close()
            return
        peer = transport.get_extra_info("peername")
        self._client = str(peer[0]) if peer else ""
        self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio calls it so
        self._server.connections.discard(self)
        self._waiting.clear()
        self._keeps = False

    def data_received(self, data: bytes) -> None:
        if not self._in_request:
            self._in_request, self._since = True, self._loop.time()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(InvalidRequest("this server does not change to another protocol"))
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            self._fail(
                cause if isinstance(cause, ServingError) else InvalidRequest("the request cannot be read as HTTP")
            )
        except httptools.HttpParserError as error:
            self._fail(InvalidRequest(f"the request cannot be read as HTTP: {error}"))

    def eof_received(self) -> bool:
        return self._is_busy  # a client may close its sending side and still read its answer

    def pause_writing(self) -> None:
        self._is_paused, self._paused_since = True, self._loop.time()

    def resume_writing(self) -> None:
        self._is_paused = False

    # -- httptools ----------------------------------------------------------------------------------------------------

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        headers = self._headers
        size = headers.get(b"content-length")
        if size is not None and int(size) > self._server.limits.most_body_bytes:
            raise TooLarge(
                f"a body of {int(size)} bytes is more than the {self._server.limits.most_body_bytes} that are taken"
            )
        if headers.get(b"expect", b"").lower() == b"100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._server.limits.most_body_bytes:
            raise TooLarge(f"the body has more than the {self._server.limits.most_body_bytes} bytes that are taken")
        self._parts.append(part)

    def on_message_complete(self) -> None:
        url = self._url
        path, _, query = url.decode("latin-1").partition("?")
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        request = HttpRequest(self._parser.get_method().decode(), path, query, self._headers, body, self._client)
        keeps = self._parser.should_keep_alive()
        self._begin()
        self._in_request, self._since = False, self._loop.time()
        if self._is_busy:
            self._waiting.append((request, keeps))
            if len(self._waiting) >= _MOST_PIPELINED:
                self._transport.pause_reading()
            return
        self._answer(request, keeps)

    # -- answers ------------------------------------------------------------------------------------------------------

    def _answer(self, request: HttpRequest, keeps: bool) -> None:
        self._is_busy, self._keeps = True, keeps
        self._server.handle(request, self._reply)

    def _reply(self, status: int, headers: Headers, *parts: bytes | memoryview) -> None:
        if not self._is_busy or self._transport.is_closing():
            return
        keeps = self._keeps and not self._server.is_draining
        lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
        if not keeps:
            lines.append("Connection: close\r\n")
        size = sum(map(len, parts))
        head = b"%b%bContent-Length: %d\r\n\r\n" % (_HEAD[status], "".join(lines).encode("latin-1", "replace"), size)
        self._transport.write(b"".join((head, *parts)))
        self._is_busy = False
        self._since = self._loop.time()
        if not keeps:
            self._transport.close()
        elif self._waiting:
            following = self._waiting.popleft()
            self._transport.resume_reading()
            self._loop.call_soon(self._answer, *following)

    def _fail(self, error: ServingError) -> None:
        """HTTP itself is broken: say so and end, since nobody knows where the next request begins."""
        if self._transport.is_closing():
            return
        self._keeps = False
        if self._is_busy:  # the one before gets its answer, which is the last
            self._waiting.clear()
            self._transport.pause_reading()
            return
        self._is_busy = True
        status, headers, body = self._server.refuse(error)
        self._reply(status, headers, body)

    def _begin(self) -> None:
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._parts: list[bytes] = []
        self._size = 0
        self._header_bytes = 0

    def _count(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > _MOST_HEADER_BYTES:
            raise TooLarge(f"the head of the request has more than {_MOST_HEADER_BYTES} bytes")

    # -- time ---------------------------------------------------------------------------------------------------------

    def check_time(self, now: float) -> None:
        limits, passed = self._server.limits, now - self._since
        if self._is_paused and now - self._paused_since > limits.write_seconds:
            self._transport.abort()
        elif self._is_busy:
            return
        elif self._in_request and passed > limits.request_seconds:
            self._fail(TooSlow(f"the request was not complete after {limits.request_seconds:g} s"))
        elif not self._in_request and passed > limits.idle_seconds:
            self._transport.close()

    def close_if_idle(self) -> None:
        if not self._is_busy and not self._in_request:
            self._transport.close()

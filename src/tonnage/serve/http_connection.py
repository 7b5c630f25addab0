"""HTTP/1.1 for servers that answer tens of thousands of small requests a second: a thin layer over httptools' parser.

Requests of a connection are answered in their order, one at a time. What a connection may hold and how long it may
take is limited.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, cast

import httptools

from tonnage.serve.errors import Busy, InvalidRequest, ServingError, TooLarge, TooSlow, Unavailable
from tonnage.serve.http_messages import Headers, HttpRequest

if TYPE_CHECKING:
    from tonnage.serve.http_server import HttpServer

log = logging.getLogger("tonnage.serve")
_HEAD = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
_HEAD[499] = b"HTTP/1.1 499 Client Closed Request\r\n"
_MOST_HEADER_BYTES = 64 << 10
_HEADER_COST = 32  # bytes that each header counts more than it is long
_PIPELINED, _MOST_PIPELINED = 8, 256  # requests after which no more are read, and those that may have come with them
_LINGER_SECONDS = 2.0  # for a client to read why it was refused
_DRAIN_SECONDS = 0.5  # that a connection must have been idle before it is ended: its client may be about to ask


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
        self._current: HttpRequest | None = None  # what is being answered
        self._keeps = True
        self._since = self._loop.time()  # of the state that it is in
        self._in_request = False
        self._is_reading = True
        self._lingers = False
        self._is_paused = False  # the client does not read its answers
        self._paused_since = 0.0
        self._paused_bytes = 0
        self._held = 0  # bytes that count for the server

    # -- asyncio ------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own is none by class
        most = self._server.limits.most_connections
        if len(self._server.connections) >= most:
            self._refuse(Unavailable(f"{most} connections are open, and no more are taken"))
            return
        peer = transport.get_extra_info("peername")
        self._client = str(peer[0]) if peer else ""
        self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio calls it so
        current, self._current = self._current, None
        self._server.connections.discard(self)
        self._waiting.clear()
        self._hold(-self._held)
        if current is not None and current.inference is not None:
            current.inference.cancel()

    def data_received(self, data: bytes) -> None:
        if self._lingers:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # it was answered as if it had not asked for that, and the connection ends with the answer
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            if not isinstance(cause, ServingError):
                log.error("a request cannot be taken", exc_info=error)
            self._fail(
                cause if isinstance(cause, ServingError) else InvalidRequest("the request cannot be read as HTTP")
            )
        except httptools.HttpParserError as error:
            self._fail(InvalidRequest(f"the request cannot be read as HTTP: {error}"))

    def pause_writing(self) -> None:
        self._is_paused, self._paused_since = True, self._loop.time()
        self._paused_bytes = self._transport.get_write_buffer_size()
        self._hold(self._paused_bytes)

    def resume_writing(self) -> None:
        self._is_paused = False
        self._hold(-self._paused_bytes)
        self._paused_bytes = 0
        if self._current is None and self._waiting:
            self._next()

    # -- httptools ----------------------------------------------------------------------------------------------------

    def on_url(self, url: bytes) -> None:
        if not self._in_request:
            self._in_request, self._since = True, self._loop.time()
        self._url += url
        self._header_bytes += len(url)
        if self._header_bytes > _MOST_HEADER_BYTES:
            raise self._too_long()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value) + _HEADER_COST
        if self._header_bytes > _MOST_HEADER_BYTES:
            raise self._too_long()
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        headers = self._headers
        size = headers.get(b"content-length")
        if size is not None and int(size) > self._server.limits.most_body_bytes:
            raise TooLarge(
                f"a body of {int(size)} bytes is more than the {self._server.limits.most_body_bytes} that are taken"
            )
        if b"expect" in headers and headers[b"expect"].lower() == b"100-continue" and self._current is None:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, part: bytes) -> None:
        server, size = self._server, len(part)
        self._size += size
        self._held += size
        server.held_bytes += size
        if self._size > server.limits.most_body_bytes:
            raise TooLarge(f"the body has more than the {server.limits.most_body_bytes} bytes that are taken")
        if server.held_bytes > server.limits.most_held_bytes:
            raise Busy("the requests that are not answered yet fill the server's memory", "try again later")
        self._parts.append(part)

    def on_message_complete(self) -> None:
        headers, parser, parts = self._headers, self._parser, self._parts
        target = self._url.decode("latin-1")
        path, _, query = (target if target.startswith("/") else _origin_form(target)).partition("?")
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        request = HttpRequest(parser.get_method().decode(), path, query, headers, body, self._client)
        keeps = parser.should_keep_alive() and b"upgrade" not in headers and request.method != "CONNECT"
        self._begin()
        self._in_request = False
        if self._current is None and not self._is_paused and not self._waiting:
            self._answer(request, keeps)
        else:
            self._queue(request, keeps)

    def _queue(self, request: HttpRequest, keeps: bool) -> None:
        """Others of this connection come first."""
        self._waiting.append((request, keeps))
        if len(self._waiting) > _MOST_PIPELINED:
            raise Busy("too many requests follow each other on one connection", "wait for answers")
        if self._is_reading and len(self._waiting) >= _PIPELINED:
            self._is_reading = False
            self._transport.pause_reading()

    # -- answers ------------------------------------------------------------------------------------------------------

    def _answer(self, request: HttpRequest, keeps: bool) -> None:
        if self._transport.is_closing():
            return
        self._current, self._keeps = request, keeps
        self._server.handle(request, partial(self._reply, request))

    def _reply(self, request: HttpRequest, status: int, headers: Headers, *parts: bytes | memoryview) -> None:
        """Only once: what comes later belongs to nobody, and must not become the answer to another request."""
        server, transport = self._server, self._transport
        if request is not self._current or transport.is_closing():
            return
        self._current = None
        size = len(request.body)
        self._held -= size
        server.held_bytes -= size
        if status >= 400 or server.log.every:
            headers = server.log.http(request, status, headers, parts)
        request.inference = None  # which refers to its answer and so to this: no work for the garbage collector
        keeps = self._keeps and not (server.is_draining and not self._waiting and not self._in_request)
        lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
        if not keeps:
            lines.append("Connection: close\r\n")
        length = sum(map(len, parts))
        head = b"%b%bContent-Length: %d\r\n\r\n" % (_HEAD[status], "".join(lines).encode("latin-1", "replace"), length)
        transport.write(b"".join((head, *parts)) if request.method != "HEAD" else head)
        self._since = self._loop.time()
        if not keeps:
            self._finish()
        elif self._waiting and not self._is_paused:
            self._loop.call_soon(self._next)

    def _finish(self) -> None:
        """Closing while the client still sends would reset the connection before it has read its answer."""
        self._waiting.clear()
        if self._lingers and self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()

    def _next(self) -> None:
        if self._current is not None or self._is_paused or not self._waiting:
            return
        following = self._waiting.popleft()
        if not self._is_reading and not self._transport.is_closing():
            self._is_reading = True
            self._transport.resume_reading()
        self._answer(*following)

    def _fail(self, error: ServingError) -> None:
        """HTTP itself is broken: say so and end, since nobody knows where the next request begins."""
        if self._transport.is_closing() or self._lingers:
            return
        self._lingers = True  # what else comes is not read
        self._keeps = False
        if self._current is not None:  # it gets its answer, which is the last
            self._waiting.clear()
            return
        self._hold(-self._size)
        self._refuse(error)

    def _refuse(self, error: ServingError) -> None:
        """What is no request, or not taken at all; the connection ends with it."""
        path = _origin_form(self._url.decode("latin-1")).partition("?")[0]
        self._current, self._keeps = HttpRequest("", path, "", self._headers, b"", self._client), False
        self._begin()
        self._reply(self._current, *self._server.refuse(error))

    def _begin(self) -> None:
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._parts: list[bytes] = []
        self._size = 0
        self._header_bytes = 0

    def _too_long(self) -> TooLarge:
        return TooLarge(f"the head of the request has more than {_MOST_HEADER_BYTES} bytes")

    def _hold(self, size: int) -> None:
        self._held += size
        self._server.held_bytes += size

    # -- time ---------------------------------------------------------------------------------------------------------

    def check_time(self, now: float) -> None:
        limits, passed = self._server.limits, now - self._since
        slowest = limits.slowest_bytes_second
        if self._is_paused:
            if now - self._paused_since > limits.write_seconds + self._paused_bytes / slowest:
                self._transport.abort()
        elif self._transport.is_closing():
            if passed > limits.write_seconds:
                self._transport.abort()
        elif self._current is not None:
            return
        elif self._lingers:
            if passed > _LINGER_SECONDS:
                self._transport.abort()
        elif self._in_request:
            if passed > limits.request_seconds + self._size / slowest:
                self._fail(TooSlow(f"the request was not complete after {passed:.0f} s"))
        elif passed > limits.idle_seconds:
            self._transport.close()

    def close_if_idle(self, now: float) -> None:
        is_free = self._current is None and not self._waiting and not self._in_request and not self._lingers
        if is_free and now - self._since > _DRAIN_SECONDS:
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()


def _origin_form(text: str) -> str:
    """What follows the host, where a request names that as well."""
    if text.startswith("/"):
        return text
    _, scheme, rest = text.partition("://")
    return f"/{rest.partition('/')[2]}" if scheme else f"/{text}"

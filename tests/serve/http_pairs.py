"""HTTP connections without a network: the server's end of a pair of sockets, and a client's."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import uvloop

from tonnage.serve.http_messages import HttpLimits, HttpRequest, Reply
from tonnage.serve.http_server import HttpServer
from tonnage.serve.rest import refusal


@dataclass
class Site:
    """A server that answers at once with what it was asked for, or, with `holds`, when the test says so."""

    limits: HttpLimits = field(default_factory=HttpLimits)
    holds: bool = False
    asked: list[tuple[HttpRequest, Reply]] = field(default_factory=list)
    server: HttpServer = field(init=False)

    def __post_init__(self) -> None:
        self.server = HttpServer(self._handle, refusal, self.limits)

    def _handle(self, request: HttpRequest, reply: Reply) -> None:
        self.asked.append((request, reply))
        if not self.holds:
            reply(200, {}, f"{request.method} {request.path} {len(request.body)}".encode())

    async def client(self) -> Client:
        theirs, ours = socket.socketpair()
        for end in (theirs, ours):
            end.setblocking(False)
        await asyncio.get_running_loop().connect_accepted_socket(self.server.connection, theirs)
        return Client(*await asyncio.open_connection(sock=ours))


@dataclass
class Client:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, *parts: bytes) -> None:
        self.writer.write(b"".join(parts))

    async def answer(self, *, has_body: bool = True) -> tuple[int, dict[str, str], bytes]:
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        body = await self.reader.readexactly(int(headers.get("content-length", "0")) if has_body else 0)
        return int(lines[0].split()[1]), headers, body

    async def refusal(self) -> tuple[int, str]:
        status, _, body = await self.answer()
        return status, json.loads(body)["error"]

    async def is_closed(self) -> bool:
        return await self.reader.read() == b""

    def close(self) -> None:
        self.writer.close()


def post(body: bytes = b"", path: str = "/x", headers: str = "") -> bytes:
    return f"POST {path} HTTP/1.1\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body


def run(test: Callable[[], Awaitable[Any]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await test()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as the server has it
        runner.run(bounded())

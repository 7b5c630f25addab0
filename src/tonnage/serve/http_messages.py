"""What HTTP connections hand to a server, and what they let clients do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from tonnage.serve.budget import MOST_BYTES
from tonnage.serve.requests import Request


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """A client that sends or reads slowly has so many seconds, and as many more as its bytes take at the slowest rate."""

    most_body_bytes: int = 1 << 30
    most_held_bytes: int = MOST_BYTES  # of all connections: what is not answered, and answers that are not read
    most_connections: int = 10_000
    request_seconds: float = 60.0  # from the first byte of a request to its last
    write_seconds: float = 60.0  # to read an answer
    idle_seconds: float = 300.0  # between two requests
    slowest_bytes_second: float = 64 << 10


@dataclass(slots=True, eq=False)
class HttpRequest:
    """`headers` have names in lower case."""

    method: str
    path: str
    query: str
    headers: dict[bytes, bytes]
    body: bytes | bytearray
    client: str
    inference: Request | None = None  # what became of it, where it asks for one


Headers: TypeAlias = Mapping[str, str]


class Reply(Protocol):
    def __call__(self, status: int, headers: Headers, *parts: bytes | memoryview) -> None: ...


Handler: TypeAlias = Callable[[HttpRequest, Reply], None]

"""How an agent is talked to: one question and one answer a connection, as lines of JSON over TCP.

The agent begins with a random line. Who asks proves to know the token by a keyed digest over that line and the question,
so that the token itself never travels and a question that was overheard cannot be asked again.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tonnage.errors import Refused, Unreachable, UsageError
from tonnage.hardware.addresses import split_address

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT_PORT = 8643
GREETING = "tonnage-agent-1"
WAIT_SECONDS = 15.0  # for the next byte of anything
_MOST_LINE_BYTES = 64 * 1024


class BadLine(Exception):
    """What came is not a line as this protocol has it."""


class Refusal(Exception):
    """The agent says no, in its own words."""


def proof(token: bytes, challenge: str, question: str) -> str:
    return hmac.new(token, f"{challenge} {question}".encode(), hashlib.sha256).hexdigest()


def is_proof(given: str, token: bytes, challenge: str, question: str) -> bool:
    """Compared in constant time."""
    return hmac.compare_digest(given.encode(), proof(token, challenge, question).encode())


def send_line(connection: socket.socket, text: str) -> None:
    connection.sendall(text.encode() + b"\n")


def read_line(connection: socket.socket) -> str:
    """Byte by byte, so that nothing behind the line is taken; raises `BadLine` for one that is too long or no text.

    The first byte may take as long as the connection waits, the rest no longer than a line does.
    """
    line, end = bytearray(), None
    while True:
        part = connection.recv(1)
        if not part:
            raise BadLine("the connection ended too early")
        if part == b"\n":
            break
        end = end or time.monotonic() + WAIT_SECONDS
        if time.monotonic() > end:
            raise TimeoutError("a line took too long")
        line += part
        if len(line) > _MOST_LINE_BYTES:
            raise BadLine("a line is too long")
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise BadLine("a line is no text") from None


def agent_address(address: str) -> tuple[str, int]:
    """Host and port of the agent; raises `UsageError`."""
    try:
        host, port = split_address(address)
    except ValueError as error:
        raise UsageError(f"address of an agent: {error}") from error
    return host, port or DEFAULT_PORT


@contextmanager
def asked(address: str, token: bytes, question: dict[str, Any], wait: float = WAIT_SECONDS) -> Iterator[socket.socket]:
    """A connection on which the question has been put.

    Raises `Unreachable` where nobody answers and `Refused` where the agent says no, also for what happens on it later.
    """
    host, port = agent_address(address)
    try:
        with socket.create_connection((host, port), timeout=WAIT_SECONDS) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            greeting, _, challenge = read_line(connection).partition(" ")
            if greeting != GREETING:
                raise BadLine("this is no agent")
            text = json.dumps(question)
            send_line(connection, f"{proof(token, challenge, text)} {text}")
            connection.settimeout(wait)
            yield connection
    except Refusal as error:
        raise Refused(f"the agent at {host}:{port} refuses: {error}") from None
    except (OSError, BadLine) as error:
        reason = (
            "it took too long" if isinstance(error, TimeoutError) else getattr(error, "strerror", None) or str(error)
        )
        hint = "is tonnage cluster agent running there, and is the address right?"
        raise Unreachable(f"the agent at {host}:{port} does not answer: {reason}", hint) from None


def answer(connection: socket.socket) -> dict[str, Any]:
    """What the agent answers on such a connection."""
    try:
        found = json.loads(read_line(connection))
    except (ValueError, RecursionError):
        raise BadLine("its answer is no JSON") from None
    if not isinstance(found, dict):
        raise BadLine("its answer is no object")
    if "error" in found:
        words = "".join(letter if letter.isprintable() else "?" for letter in str(found["error"]))
        raise Refusal(f"{words:.300}")
    return found

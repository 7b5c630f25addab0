"""The agent of a node: tells its statistics and takes part in measurements of links.

Who does not know the token gets nothing; every wait has an end, and every size a limit.
"""

from __future__ import annotations

import json
import secrets
import socket
import socketserver
import sys
import threading
from collections.abc import Callable
from typing import Any

from tonnage.bounded_server import BoundedServer
from tonnage.errors import TonnageError, UsageError
from tonnage.stages import transfers
from tonnage.stages.agent_wire import (
    GREETING,
    WAIT_SECONDS,
    BadLine,
    answer,
    asked,
    is_proof,
    read_line,
    send_line,
)
from tonnage.stages.machine import Pace, look, paces, plain_pace

MOST_CONNECTIONS = 32
MOST_PACES = 50
_START_PACES = 5


class Agent(BoundedServer):
    """Listens at `(host, port)` from the moment it is made; `serve_forever` answers."""

    most_connections = request_queue_size = MOST_CONNECTIONS

    def __init__(self, host: str, port: int, token: bytes) -> None:
        self.token = token
        self._pacing = threading.Lock()  # two calibrations at once would slow each other
        super().__init__(host, port, _Conversation)
        self._best = max(paces(_START_PACES), key=lambda pace: pace.score)

    def paces(self, count: int) -> dict[str, Any]:
        """How fast the processors are now, and at their best since the agent began: that is taken for nominal."""
        with self._pacing:
            found = paces(count)
            self._best = max([self._best, *found], key=lambda pace: pace.score)
            best: Pace = self._best
        return {"paces": [plain_pace(pace) for pace in found], "best_pace": plain_pace(best)}

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - as socketserver calls it
        """A line on stderr, where the standard library prints a traceback for each stranger that hangs up."""
        error = sys.exception()
        print(f"{client_address[0]}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)


class _Conversation(socketserver.BaseRequestHandler):
    """One question and its answer."""

    server: Agent
    request: socket.socket

    def handle(self) -> None:
        self.request.settimeout(WAIT_SECONDS)
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            send_line(self.request, json.dumps(self._answer()))
        except (OSError, BadLine) as error:
            print(f"{self.client_address[0]}: {error}", file=sys.stderr, flush=True)

    def _answer(self) -> dict[str, Any]:
        try:
            return self._put(self._question())
        except TonnageError as error:
            return {"error": error.message}
        except ValueError as error:
            return {"error": str(error)}

    def _question(self) -> dict[str, Any]:
        challenge = secrets.token_hex(16)
        send_line(self.request, f"{GREETING} {challenge}")
        given, _, text = read_line(self.request).partition(" ")
        if not is_proof(given, self.server.token, challenge, text):
            raise UsageError("the token is another one")
        try:
            question = json.loads(text)
        except RecursionError:
            question = None
        if not isinstance(question, dict):
            raise UsageError("a question is an object")
        return question

    def _put(self, question: dict[str, Any]) -> dict[str, Any]:
        ask: Callable[[dict[str, Any]], dict[str, Any]] | None = {
            "look": self._look,
            "receive": self._receive,
            "echo": self._echo,
            "send": self._send,
        }.get(str(question.get("ask")))
        if ask is None:
            raise UsageError(f"there is no question {str(question.get('ask'))!r:.40}")
        return ask(question)

    def _look(self, question: dict[str, Any]) -> dict[str, Any]:
        count = int(_number(question, "paces", 1, MOST_PACES))
        return look() | self.server.paces(count)

    def _receive(self, question: dict[str, Any]) -> dict[str, Any]:
        arrived = transfers.receive_for(self.request, _seconds(question))
        return {"nbytes": arrived.nbytes, "seconds": arrived.seconds}

    def _echo(self, question: dict[str, Any]) -> dict[str, Any]:
        transfers.echo(self.request, int(_number(question, "echoes", 1, transfers.MOST_ECHOES)))
        return {}

    def _send(self, question: dict[str, Any]) -> dict[str, Any]:
        """Measures the way from here to another agent, which has the same token."""
        address, seconds = str(question.get("to")), _seconds(question)
        echoes = int(_number(question, "echoes", 1, transfers.MOST_ECHOES))
        with asked(address, self.server.token, {"ask": "echo", "echoes": echoes}) as connection:
            trips = transfers.round_trips(connection, echoes)
        with asked(address, self.server.token, {"ask": "receive", "seconds": seconds}) as connection:
            transfers.send_for(connection, seconds)
            arrived = answer(connection)
        return {"round_trip_seconds": trips, "nbytes": arrived["nbytes"], "seconds": arrived["seconds"]}


def _seconds(question: dict[str, Any]) -> float:
    return _number(question, "seconds", 0.01, transfers.MOST_SECONDS)


def _number(question: dict[str, Any], name: str, least: float, most: float) -> float:
    value = question.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise UsageError(f"{name} must be a number from {least:g} to {most:g}, not {value!r:.40}")
    return value

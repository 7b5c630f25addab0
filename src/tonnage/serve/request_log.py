"""A line in the log for each request that failed and, where that is asked for, for all others. It never holds tokens:
neither headers nor what follows the path are written."""

from __future__ import annotations

import itertools
import json
import logging
import secrets
import time
from collections.abc import Sequence
from typing import Any

from tonnage.serve.http_messages import Headers, HttpRequest
from tonnage.serve.requests import now

log = logging.getLogger("tonnage.serve.requests")
_MOST_SECOND = 100  # lines about failures in one second: who floods the server shall not flood its disk as well
_MOST_LETTERS = 128  # of an id that a client chose
_MOST_PATH, _MOST_REASON = 200, 500


class RequestLog:
    """`every` asks for requests that succeeded as well."""

    def __init__(self, every: bool = False) -> None:
        self.every = every
        self._prefix = secrets.token_hex(4)
        self._numbers = itertools.count(1)
        self._second, self._lines, self._dropped = 0, 0, 0

    def http(self, request: HttpRequest, status: int, headers: Headers, parts: Sequence[bytes | memoryview]) -> Headers:
        """Returns the headers of the answer: one to a request that failed tells the id that the log has."""
        name = self._id_of(request)
        told = {"request": name, "method": request.method, "path": request.path[:_MOST_PATH], "client": request.client}
        told |= {"status": str(status), **_timing(request)}
        if status < 400:
            log.info("answered", extra=told)
            return headers
        self._failed({**told, "reason": _reason(parts)})
        return {**headers, "X-Request-Id": name}

    def grpc(self, method: str, client: str, name: str, status: str, reason: str = "") -> None:
        told = {"request": name[:_MOST_LETTERS] or self._new_id(), "method": method, "client": client, "status": status}
        if status == "OK":
            log.info("answered", extra=told)
        else:
            self._failed({**told, "reason": reason[:_MOST_REASON]})

    def _failed(self, told: dict[str, Any]) -> None:
        second = int(time.monotonic())
        if second != self._second:
            if self._dropped:
                log.warning("more requests failed than are written", extra={"count": self._dropped})
            self._second, self._lines, self._dropped = second, 0, 0
        self._lines += 1
        if self._lines > _MOST_SECOND:
            self._dropped += 1
        else:
            log.warning("failed", extra=told)

    def _id_of(self, request: HttpRequest) -> str:
        """The client's own, in the request or its header, or a new one."""
        if request.inference is not None and request.inference.id:
            return request.inference.id[:_MOST_LETTERS]
        given = request.headers.get(b"x-request-id", b"").decode("ascii", "replace")[:_MOST_LETTERS]
        return given if given.isprintable() and given else self._new_id()

    def _new_id(self) -> str:
        return f"{self._prefix}-{next(self._numbers)}"


def _timing(request: HttpRequest) -> dict[str, Any]:
    inference = request.inference
    if inference is None or not inference.arrived:
        return {}
    return {"milliseconds": round((now() - inference.arrived) * 1e3, 3), "model": inference.model}


def _reason(parts: Sequence[bytes | memoryview]) -> str:
    """Answers to what failed are one sentence in JSON."""
    try:
        return str(json.loads(bytes(parts[0]))["error"])[:_MOST_REASON]
    except (IndexError, KeyError, TypeError, ValueError):
        return ""

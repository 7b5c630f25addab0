"""Asks a running server whether it lives and what it serves, with nothing but Python. As a program it is the health check
of a container: `python -m tonnage.serve.health URL` exits 0 if the answer is 200."""

from __future__ import annotations

import json
import ssl
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any

LIVE, READY = "/v2/health/live", "/v2/health/ready"
_INDEX = "/v2/repository/index"
_ANSWER_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class ModelTold:
    """One version of a model, as the server tells it."""

    name: str
    version: str
    state: str
    reason: str = ""

    @property
    def has_failed(self) -> bool:
        return self.state == "UNAVAILABLE" and self.reason not in ("", "unloaded")


@dataclass(frozen=True, slots=True)
class Health:
    is_live: bool = False
    is_ready: bool = False
    models: tuple[ModelTold, ...] = field(default=())  # none where only clients with a token may ask

    @property
    def failed(self) -> tuple[ModelTold, ...]:
        return tuple(model for model in self.models if model.has_failed)


def ask_health(base: str) -> Health:
    """Of the server at `http://127.0.0.1:8000`; one that does not answer is not live."""
    ready = status_of(base + READY)
    if ready is None:
        return Health()
    return Health(is_live=True, is_ready=ready == 200, models=_models(base))


def status_of(url: str) -> int | None:
    """Of the answer; None without one."""
    try:
        with _open(url) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    except (OSError, ValueError, HTTPException):
        return None


def _models(base: str) -> tuple[ModelTold, ...]:
    try:
        with _open(base + _INDEX, b"{}") as answer:
            told = json.load(answer)
    except urllib.error.HTTPError as error:
        error.close()
        return ()
    except (OSError, ValueError, HTTPException):
        return ()
    names = ("name", "version", "state", "reason")
    models = [each for each in told if isinstance(each, dict)] if isinstance(told, list) else []
    return tuple(ModelTold(*(str(each.get(name, "")) for name in names)) for each in models)


def _open(url: str, body: bytes | None = None) -> Any:
    """No certificate is verified: nothing is said to the server that is secret, and it is asked by a number."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    straight = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    return straight.open(urllib.request.Request(url, data=body), timeout=_ANSWER_SECONDS)


if __name__ == "__main__":
    sys.exit(0 if status_of(sys.argv[1]) == 200 else 1)

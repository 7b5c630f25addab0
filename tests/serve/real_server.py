"""The rig of benchmarks/serving, for tests of a real server; and how to ask it."""

from __future__ import annotations

import json
import socket
import ssl
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "serving"))

from robust_rig import COLUMNS, Rig, serving, wait_for, write_models  # its folder is known only now

__all__ = ["Rig", "add", "ask", "count_to", "free_port", "infer", "serving", "wait_for", "write_models"]


def ask(
    url: str, body: object = None, *, token: str = "", context: ssl.SSLContext | None = None, seconds: float = 60.0
) -> tuple[int, Any]:
    """Status and JSON of an answer; a body is sent with POST."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(url, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=seconds, context=context) as answer:
            return answer.status, _read(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, _read(error.read())


def _read(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return content.decode()


def add(value: float) -> dict[str, Any]:
    """A request to the model `add`."""
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, COLUMNS], "data": [value] * COLUMNS}]}


def count_to(number: int) -> dict[str, Any]:
    """A request to the model `loop`: about a microsecond for each."""
    return {"inputs": [{"name": "n", "datatype": "INT64", "shape": [1], "data": [number]}]}


def infer(rig: Rig, model: str, body: dict[str, Any], **more: Any) -> tuple[int, Any]:
    return ask(f"{rig.addresses['REST']}/v2/models/{model}/infer", body, **more)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

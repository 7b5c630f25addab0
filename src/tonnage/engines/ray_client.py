"""Ray's dashboard over HTTP: jobs, packages, nodes and logs, plain documents in and out, and its errors as ours.

No Ray is needed here, so its version need not be the cluster's.
"""

from __future__ import annotations

import json
import os
import re
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.errors import InvalidFile, MissingDependency, NotFound, TonnageError, Unreachable, UsageError

if TYPE_CHECKING:
    import httpx2

Document = dict[str, Any]

DEFAULT_ADDRESS = "http://127.0.0.1:8265"
_ADDRESSES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")  # as Ray's own client reads them
_ANSWER_SECONDS = 30.0
_UPLOAD_SECONDS = 300.0
_MANY_NODES = 10_000  # more than this Ray does not list


class Dashboard:
    """The HTTP server on a cluster's head node, which is asked when the first question comes."""

    def __init__(self, address: str | None = None) -> None:
        self._asked_address = address
        self._connection: httpx2.Client | None = None

    @property
    def address(self) -> str:
        """As given, else as Ray's own variables name it, else this machine's."""
        named = (os.environ.get(variable, "") for variable in _ADDRESSES)
        url = self._asked_address or next((name for name in named if name.startswith("http")), DEFAULT_ADDRESS)
        return url.rstrip("/")

    def version(self) -> tuple[int, int]:
        """Of the cluster's Ray."""
        told = str(self._ask("GET", "/api/version", "version").json()["ray_version"])
        numbers = re.match(r"(\d+)\.(\d+)", told)
        if numbers is None:
            raise Unreachable(f"{self.address} tells no version of Ray: {told}")
        return int(numbers[1]), int(numbers[2])

    def upload(self, name: str, content: bytes) -> None:
        """Asked for first, as Ray's own client does: that makes Ray forget a package that no job ever refers to."""
        path = f"/api/packages/gcs/{name}"
        with suppress(NotFound):
            self._ask("GET", path, name)
        self._ask("PUT", path, name, content=content, timeout=_UPLOAD_SECONDS)

    def submit(self, request: Document) -> None:
        self._ask("POST", "/api/jobs/", request["submission_id"], json=request)

    def job(self, name: str) -> Document:
        document: Document = self._ask("GET", f"/api/jobs/{name}", name).json()
        return document

    def jobs(self) -> list[Document]:
        documents: list[Document] = self._ask("GET", "/api/jobs/", "jobs").json()
        return documents

    def stop(self, name: str) -> None:
        self._ask("POST", f"/api/jobs/{name}/stop", name)

    def delete(self, name: str) -> None:
        self._ask("DELETE", f"/api/jobs/{name}", name)

    def nodes(self) -> list[Document]:
        asked = {"limit": str(_MANY_NODES), "detail": "1"}
        answer = self._ask("GET", "/api/v0/nodes", "nodes", params=asked).json()
        documents: list[Document] = answer["data"]["result"]["result"]
        return documents

    def file(self, node_id: str, name: str) -> str:
        """Of the folder of logs on that node; nothing if it is not there."""
        asked = {"node_id": node_id, "filename": name, "lines": "-1"}
        return self._ask("GET", "/api/v0/logs/file", name, params=asked).text

    def lines(self, node_id: str, name: str, *, follow: bool, silent_seconds: float) -> Iterator[str]:
        """The same line by line; with `follow`, until nothing more has come for that long."""
        rest = b""
        for chunk in self._chunks(node_id, name, silent_seconds if follow else None):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)
        if rest:
            yield rest.decode(errors="replace")

    def _chunks(self, node_id: str, name: str, silent_seconds: float | None) -> Iterator[bytes]:
        asked = {"node_id": node_id, "filename": name, "lines": "-1"}
        path = "/api/v0/logs/file" if silent_seconds is None else "/api/v0/logs/stream"
        with self._errors(name) as client:
            import httpx2

            timeout = httpx2.Timeout(_ANSWER_SECONDS, read=silent_seconds or _ANSWER_SECONDS)
            with client.stream("GET", path, params=asked, timeout=timeout) as answer:
                if answer.is_error:
                    raise _translate(answer.status_code, answer.read().decode(errors="replace"), name)
                try:
                    yield from answer.iter_bytes()
                except httpx2.ReadTimeout:
                    if silent_seconds is None:
                        raise

    def _ask(self, method: str, path: str, name: str, **more: Any) -> httpx2.Response:
        with self._errors(name) as client:
            answer = client.request(method, path, **more)
        if answer.is_error:
            raise _translate(answer.status_code, answer.text, name)
        return answer

    @contextmanager
    def _errors(self, name: str) -> Iterator[httpx2.Client]:
        try:
            import httpx2
        except ImportError:
            raise MissingDependency("Ray is asked over HTTP with httpx2", "pip install 'tonnage[ray]'") from None
        try:
            yield self._connect()
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            hint = "RAY_API_SERVER_ADDRESS names its dashboard, for example http://head-node:8265"
            raise Unreachable(f"Ray does not answer at {self.address} ({name}): {error}", hint) from None

    def _connect(self) -> httpx2.Client:
        if self._connection is None:
            import httpx2

            self._connection = httpx2.Client(base_url=self.address, headers=_headers(), timeout=_ANSWER_SECONDS)
            weakref.finalize(self, self._connection.close)
        return self._connection


def _headers() -> dict[str, str]:
    """As Ray's own client sends them: RAY_JOB_HEADERS, and the token of clusters that ask for one."""
    try:
        headers = {str(key): str(value) for key, value in json.loads(os.environ.get("RAY_JOB_HEADERS") or "{}").items()}
    except (ValueError, AttributeError):
        raise InvalidFile("RAY_JOB_HEADERS is no JSON object", """for example: {"Authorization": "..."}""") from None
    token = os.environ.get("RAY_AUTH_TOKEN") or _token_of(os.environ.get("RAY_AUTH_TOKEN_PATH"))
    return headers | ({"Authorization": f"Bearer {token}"} if token else {})


def _token_of(path: str | None) -> str:
    try:
        return Path(path).read_text().strip() if path else ""
    except OSError as error:
        raise NotFound(f"RAY_AUTH_TOKEN_PATH cannot be read: {error.strerror}: {path}") from None


def _translate(code: int, text: str, name: str) -> TonnageError:
    """Ray answers most mistakes with 500 and its traceback: the last line tells."""
    lines = [line for line in text.splitlines() if line.strip(" .")]
    said = lines[-1].strip() if lines else "no reason was given"
    if code == 404:
        return NotFound(f"Ray has no {name!r}", "`tonnage status` lists all")
    if "already exists" in text:
        return UsageError(f"Ray has a job {name!r} already", "choose another --name")
    if code in (401, 403):
        return Unreachable(f"Ray refuses: {said}", "RAY_AUTH_TOKEN holds the token of the cluster")
    if code in (400, 422):
        return UsageError(f"Ray does not take {name!r}: {said}")
    return Unreachable(f"Ray answers {code}: {said}")

"""A client of the configuration server: what `tonnage configure` and `tonnage servers add` say to it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from tonnage import errors
from tonnage.configure import label_json
from tonnage.configure.label import SignedLabel
from tonnage.configure.signing import KnownServer
from tonnage.configure.work import Work
from tonnage.errors import MissingDependency, TonnageError, Unreachable, UsageError
from tonnage.profile.indicators import Indicators
from tonnage.service.bodies import ConfigurationAnswer, LabelView
from tonnage.service.known_servers import server_of
from tonnage.service.request import ERROR_HEADER, Run, plain_request
from tonnage.store.rows import Environment

try:
    import httpx2
except ModuleNotFoundError:
    raise MissingDependency(
        "talking to a server needs the package httpx2", "pip install 'tonnage[configure]'"
    ) from None

_TIMEOUT_SECONDS = 30.0
_MOST_BYTES = 16 * 1024 * 1024  # of an answer


class Client:
    """One server. Raises `Unreachable` where nobody answers, or not as a configuration server would."""

    def __init__(self, url: str, *, transport: httpx2.BaseTransport | None = None) -> None:
        self.url = checked_url(url)
        self._transport = transport

    def server(self) -> KnownServer:
        """Its name and public key, as it says itself."""
        plain = self._ask("GET", "/v1/servers/self")
        return server_of(plain.get("name"), plain.get("public_key"), self.url)

    def gpus(self) -> list[str]:
        """Of its inventory."""
        return [str(name) for name in self._ask("GET", "/v1/inventory").get("gpus", [])]

    def configure(self, work: Work) -> tuple[SignedLabel, ConfigurationAnswer]:
        """The label, whose signature is still to be verified, and the whole answer."""
        try:
            answer = ConfigurationAnswer.model_validate(self._ask("POST", "/v1/configurations", plain_request(work)))
        except ValidationError:
            raise self._strange() from None
        try:
            return label_json.load(answer.text.encode()), answer
        except UnicodeEncodeError:
            raise self._strange() from None

    def report(
        self, label: str, indicators: Indicators, machine: Environment | None = None, run: Run | None = None
    ) -> LabelView:
        """What a run with the label did; returns predicted beside measured."""
        body = {
            "indicators": indicators.as_dict(), "machine": {} if machine is None else asdict(machine),
            "run": None if run is None else asdict(run),
        }  # fmt: skip
        return self._view(self._ask("POST", f"/v1/labels/{label}/measurements", body))

    def label(self, label: str) -> LabelView:
        return self._view(self._ask("GET", f"/v1/labels/{label}"))

    def _view(self, plain: dict[str, Any]) -> LabelView:
        try:
            return LabelView.model_validate_json(json.dumps(plain))
        except ValidationError:
            raise self._strange() from None

    def _ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        try:
            with (
                httpx2.Client(timeout=_TIMEOUT_SECONDS, transport=self._transport) as client,
                client.stream(method, self.url + path, json=body) as response,
            ):
                content = self._read(response)
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError) as error:
            reason = str(error) or type(error).__name__
            hint = "is the address right, and is tonnage configure-server running there?"
            raise Unreachable(f"the configuration server {self.url} does not answer: {reason}", hint) from None
        plain = self._parsed(content)
        if response.status_code >= 400:
            raise self._explained(response, plain)
        return plain

    def _read(self, response: httpx2.Response) -> bytes:
        content = b""
        for part in response.iter_bytes():
            content += part
            if len(content) > _MOST_BYTES:
                raise self._strange()
        return content

    def _parsed(self, content: bytes) -> dict[str, Any]:
        try:
            plain = json.loads(content)
        except (ValueError, RecursionError):
            plain = None
        if not isinstance(plain, dict):
            raise self._strange()
        return plain

    def _explained(self, response: httpx2.Response, plain: Mapping[str, Any]) -> TonnageError:
        """The server's own sentence; its kind decides the exit code, as if it had happened here."""
        message, hint = plain.get("message"), plain.get("hint")
        if not isinstance(message, str) or not isinstance(hint, str):
            return self._strange()
        message, hint = printable(message), printable(hint)
        if response.status_code >= 500:
            return Unreachable(f"the configuration server {self.url} fails: {message}", hint)
        kind = getattr(errors, response.headers.get(ERROR_HEADER, ""), UsageError)
        is_error = isinstance(kind, type) and issubclass(kind, TonnageError)
        return kind(message, hint) if is_error else UsageError(message, hint)

    def _strange(self) -> Unreachable:
        hint = "is it the address of a tonnage configure-server?"
        return Unreachable(f"{self.url} does not answer as a configuration server does", hint)


def printable(text: str) -> str:
    """What a server says may not move the cursor."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def checked_url(url: str) -> str:
    """Without a slash at the end; raises `UsageError`."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  (raises ValueError for a port that is none)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise UsageError(f"{url!r:.200} is no address of a server", "for example: --server http://127.0.0.1:8642")
    return url.rstrip("/")

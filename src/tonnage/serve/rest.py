"""The REST side of the server: inference, the page, and how answers are given."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import orjson

from tonnage.errors import TonnageError
from tonnage.serve import page
from tonnage.serve.access import Access
from tonnage.serve.compression import chosen_encoding, compress, decompress
from tonnage.serve.data_plane import DataPlane
from tonnage.serve.errors import InvalidRequest, ServingError, UnknownThing, WrongMethod
from tonnage.serve.http_messages import Headers, HttpLimits, HttpRequest, Reply
from tonnage.serve.requests import Answer
from tonnage.serve.rest_codec import RestCodec
from tonnage.serve.rest_routes import EMPTY, Routes, is_version, no_route, only

log = logging.getLogger("tonnage.serve")
JSON = {"Content-Type": "application/json"}
_COMPRESS_APART = 256 << 10  # larger bodies are compressed in a thread, so that others are answered meanwhile
_MOST_DIGITS = 18
_GROUPS = {
    "health": "health", "repository": "repository", "systemsharedmemory": "shared-memory",
    "cudasharedmemory": "shared-memory",
}  # fmt: skip


@dataclass(slots=True)
class Rest:
    plane: DataPlane
    limits: HttpLimits = field(default_factory=HttpLimits)
    access: Access = field(default_factory=Access)
    _codec: RestCodec = field(init=False)
    _routes: Routes = field(init=False)
    _page_state: page.PageState = field(init=False)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._codec = RestCodec(self.plane.regions)
        self._routes = Routes(self.plane)
        self._page_state = page.PageState(self.plane)

    def handle(self, request: HttpRequest, reply: Reply) -> None:
        """Answers now, or later where something has to be waited for."""
        try:
            parts = request.path.split("/")
            if "%" in request.path:  # before anything is decided by them
                parts = [unquote(part) for part in parts]
            if not self.access.is_open and not page.is_file(parts[1:]):
                self._check_access(request, parts)
            if parts[-1] == "infer" and parts[1] == "v2" and len(parts) > 4:
                self._infer(request, parts, reply)
                return
            if parts[1] != "v2":
                reply(200, *self._page(request, parts[1:]))
                return
            result = self._routes.answer(request, parts[2:])
            if isinstance(result, Coroutine):
                self._later(_awaited(result, reply), reply)
            else:
                _reply_json(reply, result)
        except TonnageError as error:
            reply(*refusal(error))
        except Exception:
            log.exception("a request failed", extra={"path": request.path})
            reply(*refusal(ServingError("the server failed; its log says why")))

    def _check_access(self, http: HttpRequest, parts: list[str]) -> None:
        token = http.headers.get(b"authorization", b"").decode("latin-1")
        now = asyncio.get_running_loop().time()
        http.client = self.access.check(_group(parts), token, http.client, now)

    # -- inference ----------------------------------------------------------------------------------------------------

    def _infer(self, http: HttpRequest, parts: list[str], reply: Reply) -> None:
        model, version = _named(parts)
        if http.method != "POST":
            raise WrongMethod(f"{http.path} is called with POST")
        encoding = http.headers.get(b"content-encoding")
        accepted = http.headers.get(b"accept-encoding")
        if encoding is not None and len(http.body) > _COMPRESS_APART:
            self._later(self._infer_apart(http, model, version, reply), reply)
            return
        body = http.body
        if encoding is not None and encoding != b"identity":
            body = decompress(body, encoding.decode("latin-1"), self.limits.most_body_bytes)
        self._infer_body(http, model, version, body, accepted, reply)

    async def _infer_apart(self, http: HttpRequest, model: str, version: str, reply: Reply) -> None:
        encoding = http.headers[b"content-encoding"].decode("latin-1")
        body = await asyncio.to_thread(decompress, http.body, encoding, self.limits.most_body_bytes)
        self._infer_body(http, model, version, body, http.headers.get(b"accept-encoding"), reply)

    def _infer_body(
        self, http: HttpRequest, model: str, version: str, body: bytes | bytearray, accepted: bytes | None, reply: Reply
    ) -> None:
        size = http.headers.get(b"inference-header-content-length")
        if size is not None and not (size.isdigit() and len(size) <= _MOST_DIGITS):
            raise InvalidRequest("Inference-Header-Content-Length is not a number")

        def answer(result: Answer) -> None:
            if isinstance(result, ServingError):
                reply(*refusal(result))
                return
            try:
                headers, parts = self._codec.encode(result, rendering)
            except TonnageError as error:
                reply(*refusal(error))
                return
            except Exception:
                log.exception("a response cannot be written", extra={"model": model})
                reply(*refusal(ServingError("the server failed; its log says why")))
                return
            encoding = chosen_encoding(accepted.decode("latin-1")) if accepted is not None else ""
            if encoding:
                self._later(_compressed(headers, b"".join(parts), encoding, reply), reply)
            else:
                reply(200, headers, *parts)

        request, rendering = self._codec.decode(model, version, body, int(size) if size is not None else None, answer)
        request.client = http.client
        http.inference = request
        self.plane.infer(request)

    def _page(self, http: HttpRequest, parts: list[str]) -> tuple[Headers, bytes]:
        match parts:
            case [""]:
                found: tuple[Headers, bytes] | None = page.file("index.html")
            case ["page", "state"]:
                found = None
            case ["page", name]:
                found = page.file(name)
            case _:
                raise no_route(http)
        only(http, "GET")
        return found or (JSON, orjson.dumps(self._page_state.to_json()))

    # -- waiting ------------------------------------------------------------------------------------------------------

    def _later(self, work: Coroutine[Any, Any, None], reply: Reply) -> None:
        task = asyncio.get_running_loop().create_task(_guarded(work, reply))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _guarded(work: Coroutine[Any, Any, None], reply: Reply) -> None:
    """Whatever goes wrong, there is an answer."""
    try:
        await work
    except TonnageError as error:
        reply(*refusal(error))
    except Exception:
        log.exception("a request failed")
        reply(*refusal(ServingError("the server failed; its log says why")))


async def _awaited(result: Coroutine[Any, Any, Any], reply: Reply) -> None:
    _reply_json(reply, await result)


def refusal(error: TonnageError) -> tuple[int, Headers, bytes]:
    """What a client is told: one sentence, and what to do."""
    text = f"{error.message} ({error.hint})" if error.hint else error.message
    headers = JSON if error.http_status != 401 else {**JSON, "WWW-Authenticate": "Bearer"}
    return error.http_status, headers, orjson.dumps({"error": text})


def _reply_json(reply: Reply, document: Any) -> None:
    """Triton's answers to what only succeeds or fails are empty."""
    if document is None or document is EMPTY:
        reply(200, JSON)
    else:
        reply(200, JSON, orjson.dumps(document))


async def _compressed(headers: dict[str, str], body: bytes, encoding: str, reply: Reply) -> None:
    if len(body) > _COMPRESS_APART:
        packed = await asyncio.to_thread(compress, body, encoding)
    else:
        packed = compress(body, encoding)
    reply(200, {**headers, "Content-Encoding": encoding}, packed)


def _group(parts: list[str]) -> str:
    """What a route is for, as the file of tokens calls it."""
    if parts[1:2] != ["v2"]:
        return "page"
    first = parts[2] if len(parts) > 2 else ""
    if first == "models":
        ends = {"infer": "inference", "ready": "health", "stats": "statistics"}
        return ends.get(parts[-1], "metadata")
    return _GROUPS.get(first, "metadata")


def _named(parts: list[str]) -> tuple[str, str]:
    match parts:
        case ["", "v2", "models", name, "infer"]:
            return name, ""
        case ["", "v2", "models", name, "versions", version, "infer"] if is_version(version):
            return name, version
    raise UnknownThing(f"there is no {'/'.join(parts)} here")

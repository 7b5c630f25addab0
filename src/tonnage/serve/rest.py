"""The REST side of the server: each route is a function of the data plane."""

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
from tonnage.serve.errors import InvalidRequest, ServingError, UnknownThing, Unsupported, WrongMethod
from tonnage.serve.http_connection import Headers, HttpLimits, HttpRequest, Reply
from tonnage.serve.requests import Answer
from tonnage.serve.rest_codec import RestCodec

log = logging.getLogger("tonnage.serve")
JSON = {"Content-Type": "application/json"}
_COMPRESS_APART = 256 << 10  # larger bodies are compressed in a thread, so that others are answered meanwhile
_EMPTY: dict[str, Any] = {}


@dataclass(slots=True)
class Rest:
    plane: DataPlane
    limits: HttpLimits = field(default_factory=HttpLimits)
    access: Access = field(default_factory=Access)
    _codec: RestCodec = field(init=False)
    _page_state: page.PageState = field(init=False)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._codec = RestCodec(self.plane.regions)
        self._page_state = page.PageState(self.plane)

    def handle(self, request: HttpRequest, reply: Reply) -> None:
        """Answers now, or later where something has to be waited for."""
        try:
            parts = request.path.split("/")
            if not self.access.is_open and not page.is_file(parts[1:]):
                self._check_access(request, parts)
            if parts[-1] == "infer" and parts[1] == "v2":
                self._infer(request, parts, reply)
                return
            if parts[1] != "v2":
                reply(200, *self._page(request, parts[1:]))
                return
            result = self._route(request, [unquote(part) for part in parts[1:]])
            if isinstance(result, Coroutine):
                self._later(self._wait(result, reply))
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
            self._later(self._infer_apart(http, model, version, reply))
            return
        body = http.body
        if encoding is not None and encoding != b"identity":
            body = decompress(body, encoding.decode("latin-1"), self.limits.most_body_bytes)
        self._infer_body(http, model, version, body, accepted, reply)

    async def _infer_apart(self, http: HttpRequest, model: str, version: str, reply: Reply) -> None:
        encoding = http.headers[b"content-encoding"].decode("latin-1")
        try:
            body = await asyncio.to_thread(decompress, http.body, encoding, self.limits.most_body_bytes)
            self._infer_body(http, model, version, body, http.headers.get(b"accept-encoding"), reply)
        except TonnageError as error:
            reply(*refusal(error))

    def _infer_body(
        self, http: HttpRequest, model: str, version: str, body: bytes | bytearray, accepted: bytes | None, reply: Reply
    ) -> None:
        size = http.headers.get(b"inference-header-content-length")
        if size is not None and not size.isdigit():
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
            encoding = chosen_encoding(accepted.decode("latin-1")) if accepted is not None else ""
            if encoding:
                self._later(_compressed(headers, b"".join(parts), encoding, reply))
            else:
                reply(200, headers, *parts)

        request, rendering = self._codec.decode(model, version, body, int(size) if size is not None else None, answer)
        request.client = http.client
        self.plane.infer(request)

    def _page(self, http: HttpRequest, parts: list[str]) -> tuple[Headers, bytes]:
        _only(http, "GET")
        match parts:
            case [""]:
                return page.file("index.html")
            case ["page", "state"]:
                return JSON, orjson.dumps(self._page_state.to_json())
            case ["page", name]:
                return page.file(name)
        raise UnknownThing(f"there is no {http.path} here")

    # -- everything else ----------------------------------------------------------------------------------------------

    def _route(self, http: HttpRequest, parts: list[str]) -> Any:
        """What to answer as JSON, or a coroutine of it; None for an empty answer."""
        changes = parts[1:2] == ["repository"] or parts[-1] in ("register", "unregister")
        _only(http, "POST" if changes else "GET")
        match parts[1:]:
            case [] | [""]:
                return self.plane.server_metadata()
            case ["health", "live"]:
                return None
            case ["health", "ready"]:
                return _ready(self.plane.is_ready, "the server is not ready")
            case ["models", "stats"]:
                return {"model_stats": self.plane.statistics()}
            case ["models", *rest]:
                return self._of_model(http, rest)
            case ["repository", *rest]:
                return self._of_repository(http, rest)
            case ["systemsharedmemory", *rest]:
                return self._of_regions(http, rest)
            case ["cudasharedmemory", "status"]:
                return []
            case ["cudasharedmemory", "unregister"]:
                return None
            case ["cudasharedmemory", *_]:
                raise Unsupported("shared memory of CUDA is not taken; use system shared memory")
            case ["trace", *_] | ["logging", *_]:
                raise Unsupported("settings of traces and logs are not changed over the network")
        raise UnknownThing(f"there is no {http.path} here")

    def _of_model(self, http: HttpRequest, parts: list[str]) -> Any:
        version = ""
        match parts:
            case [name, "versions", version, *rest]:
                pass
            case [name, *rest]:
                pass
            case _:
                raise UnknownThing(f"there is no {http.path} here")
        match rest:
            case []:
                return self.plane.model_metadata(name, version)
            case ["ready"]:
                return _ready(self.plane.model_is_ready(name, version), f"{name} is not ready")
            case ["config"]:
                return self.plane.model_configuration(name, version)
            case ["stats"]:
                return {"model_stats": self.plane.statistics(name, version)}
        raise UnknownThing(f"there is no {http.path} here")

    def _of_repository(self, http: HttpRequest, parts: list[str]) -> Any:
        document = _document(http)
        match parts:
            case ["index"]:
                return self.plane.index(ready_only=document.get("ready") is True)
            case ["models", name, "load"]:
                return self.plane.load(name, _parameters(document))
            case ["models", name, "unload"]:
                return self.plane.unload(name, _parameters(document))
        raise UnknownThing(f"there is no {http.path} here")

    def _of_regions(self, http: HttpRequest, parts: list[str]) -> Any:
        regions = self.plane.regions
        match parts:
            case ["status"]:
                return [each.to_json() for each in regions.status()]
            case ["region", name, "status"]:
                return [each.to_json() for each in regions.status(name)]
            case ["unregister"]:
                regions.unregister()
                return None
            case ["region", name, "unregister"]:
                regions.unregister(name)
                return None
            case ["region", name, "register"]:
                document = _document(http)
                key, offset, size = document.get("key"), document.get("offset", 0), document.get("byte_size")
                if type(key) is not str or type(offset) is not int or type(size) is not int:
                    raise InvalidRequest("a region needs 'key', 'byte_size' and perhaps 'offset'")
                regions.register(name, key, offset, size)
                return None
        raise UnknownThing(f"there is no {http.path} here")

    # -- waiting ------------------------------------------------------------------------------------------------------

    async def _wait(self, result: Coroutine[Any, Any, Any], reply: Reply) -> None:
        try:
            found = await result
        except TonnageError as error:
            reply(*refusal(error))
        except Exception:
            log.exception("a request failed")
            reply(*refusal(ServingError("the server failed; its log says why")))
        else:
            _reply_json(reply, found)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def refusal(error: TonnageError) -> tuple[int, Headers, bytes]:
    """What a client is told: one sentence, and what to do."""
    text = f"{error.message} ({error.hint})" if error.hint else error.message
    headers = JSON if error.http_status != 401 else {**JSON, "WWW-Authenticate": "Bearer"}
    return error.http_status, headers, orjson.dumps({"error": text})


def _reply_json(reply: Reply, document: Any) -> None:
    """Triton's answers to what only succeeds or fails are empty."""
    if document is None or document is _EMPTY:
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
    last = parts[-1]
    if last == "infer":
        return "inference"
    if parts[2:3] == ["health"]:
        return "health"
    if last == "stats":
        return "statistics"
    named = {"repository": "repository", "systemsharedmemory": "shared-memory", "cudasharedmemory": "shared-memory"}
    return named.get(parts[2], "metadata") if len(parts) > 2 else "metadata"


def _named(parts: list[str]) -> tuple[str, str]:
    match parts:
        case ["", "v2", "models", name, "infer"]:
            return unquote(name), ""
        case ["", "v2", "models", name, "versions", version, "infer"]:
            return unquote(name), unquote(version)
    raise UnknownThing(f"there is no {'/'.join(parts)} here")


def _ready(is_ready: bool, otherwise: str) -> dict[str, Any]:
    """Triton answers 400 where something is not ready."""
    if not is_ready:
        raise InvalidRequest(otherwise)
    return _EMPTY


def _only(http: HttpRequest, method: str) -> None:
    if http.method != method:
        raise WrongMethod(f"{http.path} is called with {method}")


def _document(http: HttpRequest) -> dict[str, Any]:
    if not http.body:
        return _EMPTY
    try:
        document = orjson.loads(http.body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"the body is not JSON: {error}") from None
    if type(document) is not dict:
        raise InvalidRequest("the body is not a JSON object")
    return document


def _parameters(document: dict[str, Any]) -> dict[str, Any]:
    parameters = document.get("parameters", _EMPTY)
    if type(parameters) is not dict:
        raise InvalidRequest("'parameters' is not an object")
    return parameters

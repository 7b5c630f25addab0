"""The REST side of the server: each route is a function of the data plane."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import unquote

import orjson

from tonnage.errors import TonnageError
from tonnage.serve import page
from tonnage.serve.access import Access
from tonnage.serve.compression import chosen_encoding, compress, decompress
from tonnage.serve.data_plane import DataPlane
from tonnage.serve.errors import InvalidRequest, ServingError, UnknownThing, Unsupported, WrongMethod
from tonnage.serve.http_messages import Headers, HttpLimits, HttpRequest, Reply
from tonnage.serve.requests import Answer
from tonnage.serve.rest_codec import RestCodec

log = logging.getLogger("tonnage.serve")
JSON = {"Content-Type": "application/json"}
_COMPRESS_APART = 256 << 10  # larger bodies are compressed in a thread, so that others are answered meanwhile
_MOST_DIGITS = 18
_EMPTY: dict[str, Any] = {}
Route: TypeAlias = "tuple[str, Callable[[], Any]]"  # the method that it is called with, and what to answer
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
    _page_state: page.PageState = field(init=False)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._codec = RestCodec(self.plane.regions)
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
            result = self._route(request, parts[1:])
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
                raise _no_route(http)
        _only(http, "GET")
        return found or (JSON, orjson.dumps(self._page_state.to_json()))

    # -- everything else ----------------------------------------------------------------------------------------------

    def _route(self, http: HttpRequest, parts: list[str]) -> Any:
        """What to answer as JSON, or a coroutine of it; None for an empty answer."""
        method, answer = self._answer_of(http, parts[1:])
        _only(http, method)
        return answer()

    def _answer_of(self, http: HttpRequest, parts: list[str]) -> Route:
        match parts:
            case []:
                return "GET", self.plane.server_metadata
            case ["health", "live"]:
                return "GET", lambda: None
            case ["health", "ready"]:
                return "GET", lambda: _ready(self.plane.is_ready, "the server is not ready")
            case ["models", "stats"]:
                return "GET", lambda: {"model_stats": self.plane.statistics()}
            case ["models", name, "versions", version, *rest] if name and _is_version(version):
                return "GET", self._of_model(http, name, version, rest)
            case ["models", name, *rest] if name:
                return "GET", self._of_model(http, name, "", rest)
            case ["repository", *rest]:
                return "POST", self._of_repository(http, rest)
            case ["systemsharedmemory", *rest]:
                return self._of_regions(http, rest)
            case ["cudasharedmemory", *rest]:
                return _of_cuda_regions(http, rest)
            case ["trace", *_] | ["logging", *_]:
                raise Unsupported("settings of traces and logs are not changed over the network")
        raise _no_route(http)

    def _of_model(self, http: HttpRequest, name: str, version: str, parts: list[str]) -> Callable[[], Any]:
        plane = self.plane
        match parts:
            case []:
                return lambda: plane.model_metadata(name, version)
            case ["ready"]:
                return lambda: _ready(plane.model_is_ready(name, version), f"{name} is not ready")
            case ["config"]:
                return lambda: plane.model_configuration(name, version)
            case ["stats"]:
                return lambda: {"model_stats": plane.statistics(name, version)}
        raise _no_route(http)

    def _of_repository(self, http: HttpRequest, parts: list[str]) -> Callable[[], Any]:
        plane = self.plane
        match parts:
            case ["index"]:
                return lambda: plane.index(ready_only=_document(http).get("ready") is True)
            case ["models", name, "load"]:
                return lambda: plane.load(name, _parameters(_document(http)))
            case ["models", name, "unload"]:
                return lambda: plane.unload(name, _parameters(_document(http)))
        raise _no_route(http)

    def _of_regions(self, http: HttpRequest, parts: list[str]) -> Route:
        regions = self.plane.regions
        match parts:
            case ["status"]:
                return "GET", lambda: [each.to_json() for each in regions.status()]
            case ["region", name, "status"]:
                return "GET", lambda: [each.to_json() for each in regions.status(name)]
            case ["unregister"]:
                return "POST", regions.unregister
            case ["region", name, "unregister"]:
                return "POST", lambda: regions.unregister(name)
            case ["region", name, "register"]:
                return "POST", lambda: self._register(name, _document(http))
        raise _no_route(http)

    def _register(self, name: str, document: dict[str, Any]) -> None:
        key, offset, size = document.get("key"), document.get("offset", 0), document.get("byte_size")
        if type(key) is not str or type(offset) is not int or type(size) is not int:
            raise InvalidRequest("a region needs 'key', 'byte_size' and perhaps 'offset'")
        self.plane.regions.register(name, key, offset, size)

    # -- waiting ------------------------------------------------------------------------------------------------------

    def _later(self, work: Coroutine[Any, Any, None], reply: Reply) -> None:
        task = asyncio.get_running_loop().create_task(_guarded(work, reply))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _of_cuda_regions(http: HttpRequest, parts: list[str]) -> Route:
    """There are none, and none can be made."""

    def refused() -> None:
        raise Unsupported("shared memory of CUDA is not taken; use system shared memory")

    def unknown() -> None:
        raise UnknownThing(f"no shared memory region {parts[1]!r} of CUDA is registered")

    match parts:
        case ["status"]:
            return "GET", list
        case ["region", _, "status"]:
            return "GET", unknown
        case ["unregister"] | ["region", _, "unregister"]:
            return "POST", lambda: None
        case ["region", _, "register"]:
            return "POST", refused
    raise _no_route(http)


def _no_route(http: HttpRequest) -> UnknownThing:
    return UnknownThing(f"there is no {http.path} here")


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
    first = parts[2] if len(parts) > 2 else ""
    if first == "models":
        ends = {"infer": "inference", "ready": "health", "stats": "statistics"}
        return ends.get(parts[-1], "metadata")
    return _GROUPS.get(first, "metadata")


def _named(parts: list[str]) -> tuple[str, str]:
    match parts:
        case ["", "v2", "models", name, "infer"]:
            return name, ""
        case ["", "v2", "models", name, "versions", version, "infer"] if _is_version(version):
            return name, version
    raise UnknownThing(f"there is no {'/'.join(parts)} here")


def _is_version(text: str) -> bool:
    return text.isascii() and text.isdigit()


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

"""The routes of the REST side beside inference: each is a function of the data plane."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import orjson

from tonnage.serve.data_plane import DataPlane
from tonnage.serve.errors import InvalidRequest, UnknownThing, Unsupported, WrongMethod
from tonnage.serve.http_messages import HttpRequest

Route: TypeAlias = "tuple[str, Callable[[], Any]]"  # the method that it is called with, and what to answer
EMPTY: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Routes:
    plane: DataPlane

    def answer(self, http: HttpRequest, parts: list[str]) -> Any:
        """What to answer as JSON, or a coroutine of it; None for an empty answer. `parts` are those behind /v2."""
        method, answer = self._answer_of(http, parts)
        only(http, method)
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
            case ["models", name, "versions", version, *rest] if name and is_version(version):
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
        raise no_route(http)

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
        raise no_route(http)

    def _of_repository(self, http: HttpRequest, parts: list[str]) -> Callable[[], Any]:
        plane = self.plane
        match parts:
            case ["index"]:
                return lambda: plane.index(ready_only=_document(http).get("ready") is True)
            case ["models", name, "load"]:
                return lambda: plane.load(name, _parameters(_document(http)))
            case ["models", name, "unload"]:
                return lambda: plane.unload(name, _parameters(_document(http)))
        raise no_route(http)

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
        raise no_route(http)

    def _register(self, name: str, document: dict[str, Any]) -> None:
        key, offset, size = document.get("key"), document.get("offset", 0), document.get("byte_size")
        if type(key) is not str or type(offset) is not int or type(size) is not int:
            raise InvalidRequest("a region needs 'key', 'byte_size' and perhaps 'offset'")
        self.plane.regions.register(name, key, offset, size)


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
    raise no_route(http)


def no_route(http: HttpRequest) -> UnknownThing:
    return UnknownThing(f"there is no {http.path} here")


def is_version(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _ready(is_ready: bool, otherwise: str) -> dict[str, Any]:
    """Triton answers 400 where something is not ready."""
    if not is_ready:
        raise InvalidRequest(otherwise)
    return EMPTY


def only(http: HttpRequest, method: str) -> None:
    if http.method != method:
        raise WrongMethod(f"{http.path} is called with {method}")


def _document(http: HttpRequest) -> dict[str, Any]:
    if not http.body:
        return EMPTY
    try:
        document = orjson.loads(http.body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"the body is not JSON: {error}") from None
    if type(document) is not dict:
        raise InvalidRequest("the body is not a JSON object")
    return document


def _parameters(document: dict[str, Any]) -> dict[str, Any]:
    parameters = document.get("parameters", EMPTY)
    if type(parameters) is not dict:
        raise InvalidRequest("'parameters' is not an object")
    return parameters

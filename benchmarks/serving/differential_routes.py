"""REST requests beside inference: health, metadata, configuration, statistics, the repository and shared memory."""

import random
from typing import Any

from differential_models import TWINS
from differential_rest import RestRequest

_METHODS = ("GET", "POST", "PUT", "DELETE")
_ROUTES = (
    "/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/MODEL", "/v2/models/MODEL/ready", "/v2/models/MODEL/config",
    "/v2/models/MODEL/stats", "/v2/models/stats", "/v2/systemsharedmemory/status", "/v2/cudasharedmemory/status",
    "/v2/models/MODEL/versions/VERSION", "/v2/models/MODEL/versions/VERSION/ready",
    "/v2/models/MODEL/versions/VERSION/config", "/v2/models/MODEL/versions/VERSION/stats",
    "/v2/systemsharedmemory/region/nobody/status",
)  # fmt: skip
_UNKNOWN = (
    "/v2/", "/v2/health", "/v2/health/", "/v2/health/alive", "/v2/health/live/", "/v2/models", "/v2/models/",
    "/v2/models/MODEL/configuration", "/v2/models/MODEL/versions/x/ready", "/v2/systemsharedmemory", "/v1", "/v2/repository",
    "/v2/systemsharedmemory/region/nobody", "/v2/repository/index/x", "/v2/repository/models/MODEL", "/v2/models/MODEL/ready/",
    "/v2/repository/models/MODEL/reload", "/v2/cudasharedmemory", "/v2/models/MODEL/versions/1/x",
)  # fmt: skip
_VERSIONS = ("1", "1", "1", "2", "3", "9", "0")


def route_request(rng: random.Random) -> RestRequest:
    """Something that is only read."""
    path = _filled(rng, rng.choice(_ROUTES))
    return RestRequest(f"REST {_shape(path)}", "GET", path)


def wrong_route_request(rng: random.Random) -> RestRequest:
    """A route that does not exist, or is called by the wrong method."""
    if rng.random() < 0.4:
        return RestRequest("REST, unknown route", rng.choice(_METHODS), _filled(rng, rng.choice(_UNKNOWN)))
    changing = ("/v2/repository/index", "/v2/repository/models/MODEL/load", "/v2/systemsharedmemory/unregister")
    if rng.random() < 0.3:
        return RestRequest(
            "REST, wrong method", rng.choice(("GET", "PUT", "DELETE")), _filled(rng, rng.choice(changing))
        )
    return RestRequest("REST, wrong method", rng.choice(("POST", "PUT", "DELETE")), _filled(rng, rng.choice(_ROUTES)))


def repository_request(rng: random.Random) -> RestRequest:
    """The index, and what cannot be loaded."""
    if rng.random() < 0.5:
        document = rng.choice((None, {}, {"ready": True}, {"ready": False}))
        return RestRequest("REST index", "POST", "/v2/repository/index", document)
    verb = rng.choice(("load", "load", "unload"))
    made = RestRequest(f"REST {verb}, wrong", "POST", f"/v2/repository/models/nobody/{verb}")
    made.document = rng.choice((None, {}, {"parameters": {}}, {"parameters": {"unload_dependents": True}}))
    if verb == "load" and rng.random() < 0.5:
        made.path = "/v2/repository/models/counts/load"
        made.document = rng.choice(_WRONG_LOADS)
    return made


def region_request(rng: random.Random) -> RestRequest:
    """Shared memory that is not there, or described wrongly."""
    document: Any = {"key": "/tonnage-nothing", "offset": 0, "byte_size": 64}
    change = rng.choice(("", "key", "byte_size", "offset", "all", "kind"))
    if change == "all":
        document = rng.choice((None, {}, [], "text"))
    elif change == "kind":
        document[rng.choice(("key", "offset", "byte_size"))] = rng.choice((None, [], {}, "text", -1, 1.5, True))
    elif change:
        del document[change]
    if rng.random() < 0.3:
        return RestRequest("REST unregister", "POST", "/v2/systemsharedmemory/region/nobody/unregister")
    return RestRequest("REST register, wrong", "POST", "/v2/systemsharedmemory/region/some/register", document)


_WRONG_LOADS: tuple[Any, ...] = (
    {"parameters": {"config": "not JSON"}}, {"parameters": {"config": 3}}, {"parameters": []}, [], "text",
    {"parameters": {"config": "[]"}}, {"parameters": {"config": '{"max_batch_size": -1}'}},
    {"parameters": {"config": '{"max_batch_size": "many"}'}}, {"parameters": {"file:1/model.x": "AAAA"}},
    {"parameters": {"own": 3}},
)  # fmt: skip


def _filled(rng: random.Random, path: str) -> str:
    name = "nobody" if rng.random() < 0.2 else rng.choice(TWINS).name
    return path.replace("MODEL", name).replace("VERSION", rng.choice(_VERSIONS))


def _shape(path: str) -> str:
    """The route of a path: `/v2/models/words/ready` is `model ready`."""
    parts = path.split("/")[2:]
    if parts[:1] == ["models"] and parts[1:2] != ["stats"]:
        version = "version " if "versions" in parts else ""
        last = parts[-1] if parts[-1] in ("ready", "config", "stats") else "metadata"
        return f"{version or 'model '}{last}"
    return " ".join(part for part in parts if part != "nobody") or "server metadata"

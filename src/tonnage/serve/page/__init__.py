"""The page of the server: models, live charts, and a form to try them. Its files are served as they are."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

from tonnage import __version__
from tonnage.serve.data_plane import DataPlane
from tonnage.serve.errors import UnknownThing
from tonnage.serve.served_version import ServedVersion
from tonnage.serve.statistics import BOUNDS

_FILES = {
    "index.html": "text/html; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "charts.js": "text/javascript; charset=utf-8",
    "try.js": "text/javascript; charset=utf-8",
}
_SAFE = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


@cache
def file(name: str) -> tuple[dict[str, str], bytes]:
    """Headers and content of one of the page's files."""
    if name not in _FILES:
        raise UnknownThing(f"the page has no {name!r}")
    content = resources.files("tonnage.serve.page").joinpath(name).read_bytes()
    return {"Content-Type": _FILES[name], **_SAFE}, content


def state(plane: DataPlane) -> dict[str, Any]:
    """What the page shows, asked once a second."""
    served = {(each.configuration.name, each.version): each for each in plane.models.all()}
    models = []
    for entry in plane.models.index():
        version = served.get((entry.name, entry.version))
        told = {
            "name": entry.name,
            "version": entry.version,
            "state": entry.state or "UNAVAILABLE",
            "reason": entry.reason,
        }
        models.append(told if version is None else {**told, **_live(version)})
    return {"version": __version__, "ready": plane.is_ready, "bounds": BOUNDS, "models": models}


def _live(version: ServedVersion) -> dict[str, Any]:
    metadata, statistics = version.configuration.metadata([version.version]), version.statistics
    return {
        "inputs": metadata["inputs"],
        "outputs": metadata["outputs"],
        "instances": len(version.pids),
        "waiting": version.waiting,
        "since": id(version),  # counts begin anew where a version was loaded again
        "requests": statistics.success.count,
        "latencies": statistics.latencies.counts,
    }

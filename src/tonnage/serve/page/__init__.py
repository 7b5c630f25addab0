"""The page of the server: models, live charts, and a form to try them. Its files are served as they are."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

from tonnage import __version__
from tonnage.serve.data_plane import DataPlane
from tonnage.serve.errors import UnknownThing
from tonnage.serve.model_states import ModelState
from tonnage.serve.served_version import ServedVersion
from tonnage.serve.statistics import BOUNDS

_FILES = {
    "index.html": "text/html; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    "common.js": "text/javascript; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "charts.js": "text/javascript; charset=utf-8",
    "tensors.js": "text/javascript; charset=utf-8",
    "try.js": "text/javascript; charset=utf-8",
}
_SAFE = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_INDEX_SECONDS = 2.0
_MOST_SHARE = 0.01  # of the server's time that looking at the folder may take


@cache
def file(name: str) -> tuple[dict[str, str], bytes]:
    """Headers and content of one of the page's files."""
    if name not in _FILES:
        raise UnknownThing(f"the page has no {name!r}")
    content = resources.files("tonnage.serve.page").joinpath(name).read_bytes()
    return {"Content-Type": _FILES[name], **_SAFE}, content


def is_file(parts: list[str]) -> bool:
    """Is this the path of one of the files? They tell nothing about this server, so nobody needs a token for them."""
    return parts == [""] or (len(parts) == 2 and parts[0] == "page" and parts[1] in _FILES)


@dataclass(slots=True)
class PageState:
    """What all pages that are open show. The folder of models is looked at seldom, whoever asks how often."""

    plane: DataPlane
    clock: Callable[[], float] = time.monotonic
    _index: list[ModelState] = field(default_factory=list)
    _index_until: float = float("-inf")
    _numbers: count[int] = field(default_factory=count)
    _loads: WeakKeyDictionary[ServedVersion, int] = field(default_factory=WeakKeyDictionary)

    def to_json(self) -> dict[str, Any]:
        now = self.clock()
        if now >= self._index_until:
            self._look(now)
        served = {(each.configuration.name, each.version): each for each in self.plane.models.all()}
        models = [self._model(entry, served.get((entry.name, entry.version))) for entry in self._index]
        return {"version": __version__, "at": now, "ready": self.plane.is_ready, "bounds": BOUNDS, "models": models}

    def _look(self, now: float) -> None:
        self._index = self.plane.models.index()
        took = self.clock() - now
        self._index_until = now + max(_INDEX_SECONDS, took / _MOST_SHARE)

    def _model(self, entry: ModelState, version: ServedVersion | None) -> dict[str, Any]:
        told = {"name": entry.name, "version": entry.version, "state": entry.state, "reason": entry.reason}
        return told if version is None else {**told, **self._live(version)}

    def _live(self, version: ServedVersion) -> dict[str, Any]:
        metadata, statistics = version.configuration.metadata([version.version]), version.statistics
        return {
            "platform": metadata["platform"],
            "inputs": metadata["inputs"],
            "outputs": metadata["outputs"],
            "instances": len(version.pids),
            "waiting": version.waiting,
            "load": self._load_number(version),
            "requests": statistics.success.count,
            "failed": statistics.fail.count,
            "latencies": statistics.latencies.counts,
        }

    def _load_number(self, version: ServedVersion) -> int:
        """Counts begin anew where a version was loaded again: then this differs."""
        if version not in self._loads:
            self._loads[version] = next(self._numbers)
        return self._loads[version]

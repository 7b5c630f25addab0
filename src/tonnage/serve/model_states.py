"""One version of a model as the index of the repository tells it."""

from __future__ import annotations

from dataclasses import dataclass

LOADING, READY, UNLOADING, UNAVAILABLE = "LOADING", "READY", "UNLOADING", "UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class ModelState:
    """Without version and state where nobody has asked for the model yet."""

    name: str
    version: str = ""
    state: str = ""
    reason: str = ""

    def to_json(self) -> dict[str, str]:
        told = {"name": self.name, "version": self.version, "state": self.state, "reason": self.reason}
        return {key: value for key, value in told.items() if value}

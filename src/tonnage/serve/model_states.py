"""What is known of each model, and how the index of the repository tells it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TypeAlias

from tonnage.serve.configuration import ModelConfiguration
from tonnage.serve.repository import ModelFolder, Stamp
from tonnage.serve.served_version import ServedVersion

LOADING, READY, UNLOADING, UNAVAILABLE = "LOADING", "READY", "UNLOADING", "UNAVAILABLE"

# What a version was made from: while that is the same there is no reason to load it again.
Source: TypeAlias = "tuple[Stamp, ModelConfiguration]"


@dataclass(frozen=True, slots=True)
class ModelState:
    """One version. Without version and state where nobody has asked for the model yet."""

    name: str
    version: str = ""
    state: str = ""
    reason: str = ""

    def to_json(self) -> dict[str, str]:
        told = {"name": self.name, "version": self.version, "state": self.state, "reason": self.reason}
        return {key: value for key, value in told.items() if value}


@dataclass(slots=True)
class ModelRecord:
    """What is known of a model of this name."""

    is_wanted: bool = True  # false when it was unloaded
    folder: ModelFolder | None = None  # as it was when it was last tried
    served: dict[int, ServedVersion] = field(default_factory=dict)  # in the order of their numbers
    sources: dict[int, Source] = field(default_factory=dict)  # of those that are served
    loading: set[int] = field(default_factory=set)
    failed: dict[int, str] = field(default_factory=dict)  # by version; 0: all of it
    leaving: dict[int, str] = field(default_factory=dict)  # UNLOADING or UNAVAILABLE
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def states(self, name: str) -> list[ModelState]:
        numbers = sorted({*self.served, *self.loading, *self.failed, *self.leaving} - {0})
        whole = self.failed.get(0, "")
        if not numbers and (whole or self.is_wanted):
            return [ModelState(name, "", UNAVAILABLE if whole else LOADING, whole)]
        return [self._state(name, number, whole) for number in numbers]

    def _state(self, name: str, number: int, whole: str) -> ModelState:
        why = self.failed.get(number, "") or whole
        if number in self.served:
            return ModelState(name, str(number), READY, f"the last load failed: {why}" if why else "")
        if number in self.loading:
            return ModelState(name, str(number), LOADING)
        if why:
            return ModelState(name, str(number), UNAVAILABLE, why)
        state = self.leaving.get(number, UNAVAILABLE)
        return ModelState(name, str(number), state, "unloaded" if state == UNAVAILABLE else "")

"""Versions of models without processes, for tests of what is loaded and when."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from tonnage.errors import InvalidFile
from tonnage.serve.configuration import ModelConfiguration
from tonnage.serve.models import Models
from tonnage.serve.repository import Repository


class FakeVersion:
    """Loads what does not hold the word `broken`; waits for `gate` where there is one."""

    made: list[FakeVersion]
    gate: asyncio.Event | None

    def __init__(
        self, configuration: ModelConfiguration, version: int, backend: str, path: Path, places: list[Any]
    ) -> None:
        self.configuration, self.version, self.backend, self.path = configuration, str(version), backend, path
        self.places = places
        self.is_ready = self.is_retired = self.is_closed = False
        self.released = asyncio.Event()
        self.released.set()
        FakeVersion.made.append(self)

    async def load(self) -> None:
        content = self.path.read_text()
        if FakeVersion.gate is not None:
            await FakeVersion.gate.wait()
        if "broken" in content:
            raise InvalidFile(f"{self.path}: broken")
        self.is_ready = True

    async def retire(self) -> None:
        self.is_retired = True
        await self.released.wait()
        await self.close()

    async def close(self) -> None:
        self.is_closed = True


def models_of(folder: Path, **options: Any) -> Models:
    FakeVersion.made, FakeVersion.gate = [], None
    return Models(Repository(folder), make=FakeVersion, **options)  # type: ignore[arg-type]  # a stand-in


def put(folder: Path, model: str, version: int | str, content: str = "fine", name: str = "model.onnx") -> Path:
    file = folder / model / str(version) / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    return file


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)

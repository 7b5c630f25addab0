"""A running server follows its service.yaml: what has changed there is applied, what is broken is told and left alone.

Contents are compared, not times: a cluster replaces the whole folder by another link, editors replace files.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TypeAlias

from tonnage.errors import TonnageError
from tonnage.serve.reconfiguring import reconfigure
from tonnage.serve.server import Server
from tonnage.serve.settings import ServeSettings, SettingsSource

log = logging.getLogger("tonnage.serve")
LOOK_SECONDS = 2.0
Follow: TypeAlias = Callable[[Server], Coroutine[None, None, None]]


def following(source: SettingsSource, look_seconds: float = LOOK_SECONDS) -> Follow:
    """What is to be run beside a server that was started with what `source` says now."""
    began = _digests(source)

    async def follow(server: Server) -> None:
        known = began
        while True:
            await asyncio.sleep(look_seconds)
            now = await asyncio.to_thread(_digests, source)
            if now != known:
                known = now
                await _apply(server, source)

    return follow


async def _apply(server: Server, source: SettingsSource) -> None:
    try:
        options = await asyncio.to_thread(lambda: source.read().options())
        await reconfigure(server, options)
    except TonnageError as error:
        log.error("the new configuration is not used", extra={"reason": error.message})


def _digests(source: SettingsSource) -> dict[Path, bytes]:
    """Of the file, and of the file with tokens that it names."""
    assert source.file is not None
    files = {source.file: _digest(source.file)}
    try:
        settings = source.read()
    except TonnageError:
        return files
    return files | {path: _digest(path) for path in _named(settings)}


def _named(settings: ServeSettings) -> list[Path]:
    return [settings.access] if settings.access is not None else []


def _digest(path: Path) -> bytes:
    """Nothing, while the file is being replaced."""
    try:
        return hashlib.sha256(path.read_bytes()).digest()
    except OSError:
        return b""

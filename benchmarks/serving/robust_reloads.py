"""A model is loaded again and again while clients use it: does any of them notice?"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from pathlib import Path
from typing import Any

from robust_load import Connection, Load
from robust_rig import Rig, serving

_TURNS = 5
_CAPACITY_SECONDS = 3.0
_LOAD = 0.8
_MOST_RATIO = 1.3
_PAUSE_SECONDS = 0.2  # after each reload; a server that does nothing but load is another question


def reloads(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """In turns: a while without reloads, and as long with them."""
    with serving(folder) as rig:
        return asyncio.run(_measured(folder, rig, options))


async def _measured(folder: Path, rig: Rig, options: argparse.Namespace) -> dict[str, Any]:
    capacity = await _capacity(rig, options.clients)
    pause = options.clients / (_LOAD * capacity)  # between the beginnings of a client's requests
    quiet, busy = [_Paced(rig.port("REST"), options.clients, pause) for _ in range(2)]
    processes: set[int] = set()
    turns = min(_TURNS, options.reloads)
    for turn in range(turns):
        count = options.reloads // turns + (turn < options.reloads % turns)
        began = time.monotonic()
        await busy.during(_reload(folder, rig, count, processes))
        await quiet.during(asyncio.sleep(time.monotonic() - began))
    wrong = sum(count for load in (quiet, busy) for kind, count in load.outcomes.items() if kind != "right")
    ratio = busy.percentile(0.99) / quiet.percentile(0.99)
    return {
        "reloads": options.reloads, "pause, s": _PAUSE_SECONDS, "processes": len(processes), "requests a second at most": round(capacity),
        "requests without": len(quiet.sent), "requests with": len(busy.sent), "not right": wrong,
        "median without, ms": round(1e3 * quiet.percentile(0.5), 2), "median with, ms": round(1e3 * busy.percentile(0.5), 2),
        "p99 without, ms": round(1e3 * quiet.percentile(0.99), 2), "p99 with, ms": round(1e3 * busy.percentile(0.99), 2),
        "p99 ratio": round(ratio, 2), "problems": (quiet.problems + busy.problems)[:5],
        "p99 within 1.3": ratio <= _MOST_RATIO,
        "passed": not wrong and len(processes) >= options.reloads,
    }  # fmt: skip


async def _capacity(rig: Rig, clients: int) -> float:
    end = time.monotonic() + _CAPACITY_SECONDS
    load = Load(rig.port("REST"), clients, is_over=lambda: time.monotonic() > end)
    await load.run()
    return load.outcomes["right"] / _CAPACITY_SECONDS


class _Paced(Load):
    """Each client asks at its own beat, whatever the answers take; a late one asks at once."""

    def __init__(self, port: int, clients: int, beat: float) -> None:
        super().__init__(port, clients)
        self._beat = beat

    async def during(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self.is_over = task.done
        await asyncio.gather(task, self.run())

    async def _client(self) -> None:
        connection, due = Connection(self.port), time.monotonic()
        try:
            while not self.is_over():
                await self._ask(connection)
                due = max(due + self._beat, time.monotonic() - self._beat)
                await asyncio.sleep(max(due - time.monotonic(), 0))
        finally:
            connection.close()


async def _reload(folder: Path, rig: Rig, count: int, processes: set[int]) -> None:
    connection = Connection(rig.port("REST"))
    for _ in range(count):
        os.utime(folder / "add" / "1" / "model.onnx")  # what has not changed is not loaded again
        answer = await connection.post("/v2/repository/models/add/load", b"")
        if answer.status != 200:
            raise RuntimeError(f"the model was not loaded: {answer.body!r}")
        processes |= {each.pid for each in rig.instances}
        await asyncio.sleep(_PAUSE_SECONDS)
    connection.close()

"""Malformed requests over REST and gRPC: each gets an answer that blames it, and afterwards the server works as before."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

from robust_fuzz_cases import damaged_http, grpc_case
from robust_load import Connection, Load, read_answer
from robust_rig import Rig, serving

_WORKERS = 8
_MOST_SECONDS = 10.0  # until an answer
_MOST_GROWTH = 96 << 20  # bytes, of server and instances together
_GRPC_SHARE = 4  # one in so many goes over gRPC
_FINE = {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "UNIMPLEMENTED", "UNAVAILABLE", "RESOURCE_EXHAUSTED"}


def fuzz(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    with serving(folder, "--body-limit", "1MiB") as rig:
        row = asyncio.run(_fuzzed(rig, options))
        row["exit code"] = rig.stop()
    tracebacks = [line for line in rig.log if "Traceback" in line or "failed; its log" in line]
    row |= {"tracebacks": len(tracebacks), "passed": row["passed"] and not tracebacks and row["exit code"] == 0}
    return row


async def _fuzzed(rig: Rig, options: argparse.Namespace) -> dict[str, Any]:
    await _work(rig)  # what is slow and large the first time is over
    before, instances = rig.used_bytes, {each.pid for each in rig.instances}
    outcomes: Counter[str] = Counter()
    odd: list[str] = []
    numbers = iter(range(options.seed, options.seed + options.count))
    workers = [_Worker(rig, numbers, outcomes, odd) for _ in range(_WORKERS)]
    began = time.monotonic()
    await asyncio.gather(*(worker.run() for worker in workers))
    seconds = time.monotonic() - began
    await Connection(rig.port("REST")).post("/v2/repository/models/add/load", b"")
    works = await _work(rig)
    growth = rig.used_bytes - before
    return {
        "inputs": options.count, "seconds": round(seconds), "outcomes": dict(sorted(outcomes.items())),
        "odd": odd[:8], "growth, MiB": round(growth / 2**20, 1), "works afterwards": works,
        "instances that stayed": len(instances & {each.pid for each in rig.instances}),
        "passed": not odd and works and growth < _MOST_GROWTH and rig.process.poll() is None,
    }  # fmt: skip


async def _work(rig: Rig) -> bool:
    load = Load(rig.port("REST"), 4)
    load.is_over = lambda: len(load.sent) > 200
    await load.run()
    return load.outcomes["right"] == len(load.sent) > 200


class _Worker:
    """One connection at a time; what is odd is kept with the number that makes it again."""

    def __init__(self, rig: Rig, numbers: Any, outcomes: Counter[str], odd: list[str]) -> None:
        import grpc

        self._port, self._numbers, self._outcomes, self._odd = rig.port("REST"), numbers, outcomes, odd
        self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{rig.port('gRPC')}")
        self._grpc_error = grpc.aio.AioRpcError
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def run(self) -> None:
        for number in self._numbers:
            chance = random.Random(number)
            try:
                async with asyncio.timeout(_MOST_SECONDS):
                    await (self._grpc(chance, number) if number % _GRPC_SHARE == 0 else self._http(chance, number))
            except TimeoutError:
                self._note("no answer", number, "")
                self._close()
        self._close()
        await self._channel.close()

    async def _http(self, chance: random.Random, number: int) -> None:
        content, is_whole = damaged_http(chance)
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        try:
            writer.write(content)
            if not is_whole:  # it may be waiting for more
                writer.write_eof()
            answer = await read_answer(reader, has_body=content[:5] != b"HEAD ")
        except (ConnectionError, asyncio.IncompleteReadError):
            self._note("closed" if not is_whole else "closed without an answer", number, content)
            self._close()
            return
        except (ValueError, IndexError, asyncio.LimitOverrunError):
            self._note("unreadable", number, content)
            self._close()
            return
        kind = f"HTTP {answer.status}"
        if answer.status >= 400 and answer.status != 404 and content[:5] != b"HEAD " and not _blames(answer.body):
            kind = "no message"
        self._note(kind, number, content)
        if answer.is_last or not is_whole:
            self._close()

    async def _grpc(self, chance: random.Random, number: int) -> None:
        method, content = grpc_case(chance)
        call = self._channel.unary_unary(method)
        try:
            await call(content)
            self._note("gRPC OK", number, content)
        except self._grpc_error as error:
            name = error.code().name
            if not error.details():
                name = "no message"
            self._note(f"gRPC {name}", number, content)

    def _note(self, kind: str, number: int, content: object) -> None:
        self._outcomes[kind] += 1
        transport, _, status = kind.partition(" ")
        if transport == "HTTP":
            is_fine = status.startswith(("2", "4")) or status in ("501", "503")
        elif transport == "gRPC":
            is_fine = status in _FINE
        else:
            is_fine = kind == "closed"
        if not is_fine and len(self._odd) < 20:
            self._odd.append(f"{number}: {kind}: {content!r:.300}")

    def _close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def _blames(body: bytes) -> bool:
    try:
        return bool(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return False

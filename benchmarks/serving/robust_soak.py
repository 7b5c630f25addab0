"""A long time of mixed load: JSON, binary tensors, gRPC, shared memory, large requests, errors, clients that go away.
Does the memory of the server or of its instances grow?"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
from robust_load import Connection, NoAnswer
from robust_rig import COLUMNS, Rig, serving

_SAMPLES = 120
_WARM = 0.5  # of the time: caches fill, allocators find their size
_MOST_GROWTH = 0.03  # of the memory, over the second half
_MOST_BYTES = 4 << 20  # or this much, where that is more

Asks = Callable[[random.Random], Awaitable[str]]


def soak(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    seconds = options.seconds or 3600.0
    with serving(folder) as rig:
        outcomes, times, sizes = asyncio.run(_soaked(rig, seconds, options))
        code = rig.stop()
    late = np.array(times) > _WARM * seconds
    slope = float(np.polyfit(np.array(times)[late], np.array(sizes)[late], 1)[0])  # bytes a second
    growth, middle = slope * (1 - _WARM) * seconds, float(np.median(sizes))
    wrong = {kind: count for kind, count in outcomes.items() if kind.startswith("wrong")}
    return {
        "seconds": seconds, "outcomes": dict(outcomes), "memory, MiB": round(middle / 2**20, 1),
        "growth in second half, KiB": round(growth / 2**10), "growth an hour, MiB": round(slope * 3600 / 2**20, 2),
        "exit code": code,
        "passed": not wrong and code == 0 and growth < max(_MOST_GROWTH * middle, _MOST_BYTES),
    }  # fmt: skip


async def _soaked(rig: Rig, seconds: float, options: argparse.Namespace) -> tuple[Counter[str], list[float], list[int]]:
    began = time.monotonic()
    outcomes: Counter[str] = Counter()
    times: list[float] = []
    sizes: list[int] = []

    def is_over() -> bool:
        return time.monotonic() - began > seconds

    async def client(name: str, ask: Asks) -> None:
        chance = random.Random(f"{options.seed} {name}")
        while not is_over():
            outcomes[f"{name}: {await ask(chance)}"] += 1

    async def sample() -> None:
        while not is_over():
            await asyncio.sleep(seconds / _SAMPLES)
            times.append(time.monotonic() - began)
            sizes.append(rig.used_bytes)

    clients = [client(name, ask) for name, ask in _clients(rig).items()]
    await asyncio.gather(sample(), *clients)
    return Counter({key.replace(": wrong", ""): n for key, n in outcomes.items()}) + _wrong(outcomes), times, sizes


def _wrong(outcomes: Counter[str]) -> Counter[str]:
    return Counter({f"wrong {key}": count for key, count in outcomes.items() if key.endswith("wrong")})


def _clients(rig: Rig) -> dict[str, Asks]:
    port = rig.port("REST")
    return {
        "json": _Rest(port).json, "binary": _Rest(port).binary, "errors": _Rest(port).error, "leaving": _Rest(port).leave,
        "grpc": _Grpc(rig.port("gRPC")).infer, "grpc errors": _Grpc(rig.port("gRPC")).error,
        "shared memory": _Shared(port).infer,
    }  # fmt: skip


def _told(is_right: bool) -> str:
    return "right" if is_right else "wrong"


class _Rest:
    """Everything over HTTP."""

    def __init__(self, port: int) -> None:
        self._port, self._connection = port, Connection(port)

    async def json(self, chance: random.Random) -> str:
        value = chance.random()
        inputs = [{"name": "x", "datatype": "FP32", "shape": [1, COLUMNS], "data": [value] * COLUMNS}]
        answer = await self._connection.post("/v2/models/add/infer", json.dumps({"inputs": inputs}).encode())
        found = json.loads(answer.body)["outputs"][0]["data"]
        return _told(answer.status == 200 and np.allclose(found, value + 1))

    async def binary(self, chance: random.Random) -> str:
        """Now and then a large one."""
        rows = 32 if chance.random() < 0.2 else 1
        given = np.random.default_rng(chance.randrange(1 << 30)).random((rows, COLUMNS), dtype=np.float32)
        tensor = {"name": "x", "datatype": "FP32", "shape": [rows, COLUMNS]}
        tensor["parameters"] = {"binary_data_size": given.nbytes}
        head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
        headers = f"Inference-Header-Content-Length: {len(head)}\r\n"
        answer = await self._connection.post("/v2/models/add/infer", head + given.tobytes(), headers)
        size = int(answer.headers.get("inference-header-content-length", "0"))
        found = np.frombuffer(answer.body[size:], np.float32)
        return _told(answer.status == 200 and np.array_equal(found, (given + 1).ravel()))

    async def error(self, chance: random.Random) -> str:
        body = chance.choice([b"", b"{", b"[]", b'{"inputs": []}', b'{"inputs": [{"name": "y"}]}', b"\xff" * 100_000])
        path = chance.choice(["/v2/models/add/infer", "/v2/models/none/infer", "/v2/models/add/versions/7/infer"])
        answer = await self._connection.post(path, body)
        return _told(answer.status in (400, 404))

    async def leave(self, chance: random.Random) -> str:
        """Asks for what takes a while, and does not wait."""
        body = {"inputs": [{"name": "n", "datatype": "INT64", "shape": [1], "data": [chance.randrange(20_000)]}]}
        connection = Connection(self._port)
        with contextlib.suppress(TimeoutError, NoAnswer):
            await asyncio.wait_for(connection.post("/v2/models/loop/infer", json.dumps(body).encode()), 0.005)
        connection.close()
        await asyncio.sleep(0.05)
        return "right"


class _Grpc:
    """The same over gRPC."""

    def __init__(self, port: int) -> None:
        import grpc

        from tonnage.serve.grpc_messages import SERVICE, message

        self._error = grpc.aio.AioRpcError
        self._request, self._parameter = message("ModelInferRequest"), message("InferParameter")
        self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        self._call = self._channel.unary_unary(
            f"/{SERVICE}/ModelInfer",
            request_serializer=self._request.SerializeToString,
            response_deserializer=message("ModelInferResponse").FromString,
        )

    async def infer(self, chance: random.Random) -> str:
        given = np.full((1, COLUMNS), chance.random(), np.float32)
        request = self._request(model_name="add", raw_input_contents=[given.tobytes()])
        request.inputs.add(name="x", datatype="FP32", shape=[1, COLUMNS])
        answer = await self._call(request)
        return _told(answer.raw_output_contents[0] == (given + 1).tobytes())

    async def error(self, chance: random.Random) -> str:
        request = self._request(model_name=chance.choice(["add", "none"]), raw_input_contents=[b"123"])
        try:
            await self._call(request)
        except self._error as error:
            return _told(error.code().name in ("INVALID_ARGUMENT", "NOT_FOUND"))
        return "wrong"


class _Shared(_Rest):
    """Tensors in system shared memory: registered, used and given back."""

    async def infer(self, chance: random.Random) -> str:
        from multiprocessing import shared_memory

        given = np.full((1, COLUMNS), chance.random(), np.float32)
        memory = shared_memory.SharedMemory(create=True, size=2 * given.nbytes)
        try:
            memory.buf[: given.nbytes] = given.tobytes()
            return await self._through(memory.name, memory, given)
        finally:
            memory.close()
            memory.unlink()

    async def _through(self, name: str, memory: Any, given: Any) -> str:
        region = f"/v2/systemsharedmemory/region/{name}"
        size = given.nbytes
        registered = {"key": f"/{name}", "offset": 0, "byte_size": 2 * size}
        first = await self._connection.post(f"{region}/register", json.dumps(registered).encode())
        place = {"shared_memory_region": name, "shared_memory_byte_size": size}
        tensor = {"name": "x", "datatype": "FP32", "shape": [1, COLUMNS], "parameters": place}
        output = {"name": "y", "parameters": {**place, "shared_memory_offset": size}}
        body = json.dumps({"inputs": [tensor], "outputs": [output]}).encode()
        second = await self._connection.post("/v2/models/add/infer", body)
        third = await self._connection.post(f"{region}/unregister", b"")
        is_right = bytes(memory.buf[size : 2 * size]) == (given + 1).tobytes()
        return _told(is_right and [each.status for each in (first, second, third)] == [200] * 3)

"""A repository behind a real server with real instances: reload under load, polling, broken files, limits."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tritonclient.grpc
import tritonclient.http
from repository_models import Scaled, save_exported, save_scripted, save_sum, version
from tritonclient.utils import InferenceServerException

from tonnage.serve.datatypes import Tensor, as_array
from tonnage.serve.errors import ServingError
from tonnage.serve.requests import Answer, Request
from tonnage.serve.server import Control, ServeOptions, Server

pytestmark = pytest.mark.slow
ROW = np.ones((1, 3), np.float32)


@asynccontextmanager
async def serving(folder: Path, **options: Any) -> AsyncIterator[tuple[Server, Any]]:
    server = Server(ServeOptions(repository=folder, http_port=0, grpc_port=0, metrics_port=0, **options))
    addresses = await server.start()
    try:
        yield server, addresses
    finally:
        await server.drain()
        await server.close()


async def infer(server: Server, model: str, inputs: dict[str, Any], version: str = "") -> Any:
    """The first output."""
    future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    tensors = [Tensor(name, "FP32", array.shape, array.tobytes()) for name, array in inputs.items()]
    server.plane.infer(Request(model, version, tensors, future.set_result))
    result = await future
    if isinstance(result, ServingError):
        raise result
    first = result.outputs[0]
    return as_array(first.datatype, first.shape, first.data)


async def until(condition: Any, seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


def states(server: Server) -> dict[tuple[str, str], str]:
    return {(each.name, each.version): each.state for each in server.models.index()}


def test_reloads_under_load_lose_and_mix_nothing(tmp_path: Path) -> None:
    file = version(tmp_path, "m") / "model.onnx"
    save_sum(file, factor=1)

    async def check() -> None:
        async with serving(tmp_path) as (server, _):
            seen: list[float] = []
            is_over = False

            async def ask(number: float) -> None:
                while not is_over:
                    made = await infer(server, "m", {"a": ROW * number, "b": ROW * 0})
                    assert len(set(made.ravel())) == 1
                    seen.append(made[0, 0] / number)

            clients = [asyncio.create_task(ask(number)) for number in (1.0, 2.0, 4.0, 8.0)]
            for factor in (2.0, 4.0, 8.0):
                save_sum(file, factor=factor)
                await server.models.load("m")
                assert (await infer(server, "m", {"a": ROW, "b": ROW * 0}))[0, 0] == factor
                async with asyncio.timeout(30):
                    while factor not in seen:
                        await asyncio.sleep(0.01)
            is_over = True
            await asyncio.gather(*clients)
            assert set(seen) == {1.0, 2.0, 4.0, 8.0}

    asyncio.run(check())


def test_loading_unloading_and_asking_at_once_is_safe(tmp_path: Path) -> None:
    save_sum(version(tmp_path, "m") / "model.onnx")

    async def check() -> None:
        async with serving(tmp_path) as (server, _):
            refusals: set[str] = set()
            is_over = False

            async def ask() -> None:
                while not is_over:
                    try:
                        assert (await infer(server, "m", {"a": ROW, "b": ROW}))[0, 0] == 2
                    except ServingError as error:
                        refusals.add(type(error).__name__)
                    await asyncio.sleep(0)

            clients = [asyncio.create_task(ask()) for _ in range(4)]
            changes = [server.models.load("m", f'{{"max_batch_size": {most}}}') for most in (2, 3)]
            await asyncio.gather(*changes, server.models.unload("m"), server.models.load("m"))
            is_over = True
            await asyncio.gather(*clients)
            assert refusals <= {"Unavailable"}
            assert (await infer(server, "m", {"a": ROW, "b": ROW}))[0, 0] == 2
            await until(lambda: not server.models._retiring)
            assert len(server.models.all()) == 1

    asyncio.run(check())


def test_models_of_each_kind_answer_and_broken_ones_harm_nobody(tmp_path: Path) -> None:
    save_sum(version(tmp_path, "onnx") / "model.onnx")
    rows = torch.export.Dim("rows")
    example = (torch.zeros(2, 3), torch.zeros(2, 3))
    save_exported(version(tmp_path, "exported") / "model.pt2", Scaled(), example, {"x": {0: rows}, "offset": {0: rows}})
    tensors = "".join(f'input {{ name: "INPUT__{n}" data_type: TYPE_FP32 dims: 3 }} ' for n in (0, 1))
    tensors += 'max_batch_size: 4 output { name: "OUTPUT__0" data_type: TYPE_FP32 dims: 3 }'
    save_scripted(version(tmp_path, "scripted", configuration=tensors) / "model.pt", Scaled())
    for name in ("model.onnx", "model.pt2", "model.pt"):
        (version(tmp_path, f"broken-{name}") / name).write_bytes(b"nonsense")

    async def check() -> None:
        async with serving(tmp_path) as (server, _):
            found = {name: state for (name, _), state in states(server).items()}
            assert {name for name, state in found.items() if state == "READY"} == {"onnx", "exported", "scripted"}
            assert not server.models.are_ready
            for each in server.models.index():
                if each.state == "UNAVAILABLE":
                    assert f"1/{each.name.removeprefix('broken-')}" in each.reason
            assert (await infer(server, "onnx", {"a": ROW, "b": ROW}))[0, 0] == 2
            assert (await infer(server, "exported", {"x": ROW, "offset": ROW}))[0, 0] == 3
            assert (await infer(server, "scripted", {"INPUT__0": ROW, "INPUT__1": ROW}))[0, 0] == 3

    asyncio.run(check())


def test_polling_follows_the_folder(tmp_path: Path) -> None:
    models, elsewhere = tmp_path / "models", tmp_path / "elsewhere"
    models.mkdir()
    save_sum(version(elsewhere, "m") / "model.onnx", factor=1)

    async def check() -> None:
        async with serving(models, control=Control.POLL, poll_seconds=0.1) as (server, addresses):
            assert server.models.are_ready
            shutil.copytree(elsewhere / "m", models / "m")
            await until(lambda: states(server).get(("m", "1")) == "READY")
            save_sum(version(models, "m", 2) / "model.onnx", factor=3)
            await until(lambda: states(server).get(("m", "2")) == "READY")
            assert (await infer(server, "m", {"a": ROW, "b": ROW}))[0, 0] == 6
            (models / "m" / "2" / "model.onnx").write_bytes(b"nonsense")
            await until(lambda: any("model.onnx" in each.reason for each in server.models.index()))
            assert server.models.are_ready
            assert (await infer(server, "m", {"a": ROW, "b": ROW}))[0, 0] == 6
            with pytest.raises(InferenceServerException, match="not allowed if polling is enabled"):
                await asyncio.to_thread(load_over_http, addresses, "m")
            models.rename(elsewhere / "away")
            await asyncio.sleep(0.3)
            assert (await infer(server, "m", {"a": ROW, "b": ROW}))[0, 0] == 6
            (elsewhere / "away").rename(models)
            shutil.rmtree(models / "m")
            await until(lambda: states(server).get(("m", "2")) == "UNAVAILABLE")
            assert server.models.are_ready

    asyncio.run(check())


def test_clients_are_told_why_a_model_is_not_loaded(tmp_path: Path) -> None:
    save_sum(version(tmp_path, "m") / "model.onnx")
    (version(tmp_path, "broken") / "model.onnx").write_bytes(b"nonsense")

    async def check() -> None:
        async with serving(tmp_path, load_models=(), memory_limit_bytes=40 << 20) as (_, addresses):
            with pytest.raises(InferenceServerException) as caught:
                await asyncio.to_thread(load_over_http, addresses, "m")
            assert caught.value.status() == "422"
            assert "are left of the memory limit of 40.0 MiB" in caught.value.message()
            with pytest.raises(InferenceServerException) as caught:
                await asyncio.to_thread(load_over_grpc, addresses, "m")
            assert caught.value.status() == "StatusCode.RESOURCE_EXHAUSTED"
        async with serving(tmp_path, load_models=()) as (_, addresses):
            with pytest.raises(
                InferenceServerException, match=r"load failed for model 'broken': .*/broken/1/model\.onnx"
            ):
                await asyncio.to_thread(load_over_http, addresses, "broken")
            with pytest.raises(InferenceServerException, match=r"no model '\.\./m'"):
                await asyncio.to_thread(load_over_grpc, addresses, "../m")
            await asyncio.to_thread(load_over_http, addresses, "m")

    asyncio.run(check())


def load_over_http(addresses: Any, name: str) -> None:
    with tritonclient.http.InferenceServerClient(addresses.http.removeprefix("http://")) as client:
        client.load_model(name)


def load_over_grpc(addresses: Any, name: str) -> None:
    with tritonclient.grpc.InferenceServerClient(addresses.grpc) as client:
        client.load_model(name)

"""Streams of requests over gRPC, by the official clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tritonclient", reason="tritonclient is not installed: pip install 'tritonclient[http,grpc]'")

from served_models import add_sub
from server_rig import Served, serving
from triton_clients import Client, connected, random_array

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]
COUNT = 40


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    repository: Path = tmp_path_factory.mktemp("models")
    add_sub(repository / "add_sub")
    with serving(repository) as started:
        yield started


def inputs_of(client: Client, number: int) -> list[Any]:
    return [client.input(name, np.full((1, 4), number, np.float32)) for name in ("INPUT0", "INPUT1")]


def test_answers_of_a_stream_come_in_the_order_of_the_requests(served: Served) -> None:
    answers: Queue[tuple[Any, Any]] = Queue()
    with connected("grpc", served) as client:
        client.start_stream(callback=lambda result, error: answers.put((result, error)))
        for number in range(COUNT):
            client.async_stream_infer("add_sub", inputs_of(client, number), request_id=str(number))
        got = [answers.get(timeout=30) for _ in range(COUNT)]
        client.stop_stream()
    assert [error for _, error in got] == [None] * COUNT
    assert [result.get_response().id for result, _ in got] == [str(number) for number in range(COUNT)]
    assert [result.as_numpy("OUTPUT0")[0, 0] for result, _ in got] == [2.0 * number for number in range(COUNT)]


def test_a_wrong_request_does_not_end_its_stream(served: Served) -> None:
    answers: Queue[tuple[Any, Any]] = Queue()
    with connected("grpc", served) as client:
        client.start_stream(callback=lambda result, error: answers.put((result, error)))
        for model in ("add_sub", "nobody", "add_sub"):
            client.async_stream_infer(model, inputs_of(client, 1))
        got = [answers.get(timeout=30) for _ in range(3)]
        client.stop_stream()
    assert [error is None for _, error in got] == [True, False, True]
    assert "nobody" in str(got[1][1])


def test_a_stream_of_asyncio_is_answered(served: Served) -> None:
    with connected("grpc.aio", served) as client:

        async def asked() -> AsyncIterator[dict[str, Any]]:
            for number in range(COUNT):
                model = "nobody" if number == 5 else "add_sub"
                yield {"model_name": model, "inputs": inputs_of(client, number), "request_id": str(number)}

        async def work(official: Any) -> list[tuple[Any, Any]]:
            return [answer async for answer in official.stream_infer(asked())]

        got = client.run(work)
    assert [number for number, (_, error) in enumerate(got) if error is not None] == [5]
    ids = [result.get_response().id for result, error in got if error is None]
    assert ids == [str(number) for number in range(COUNT) if number != 5]


def test_requests_that_are_sent_at_once_are_all_answered(served: Served) -> None:
    answers: Queue[tuple[Any, Any]] = Queue()
    values = {str(number): random_array("FP32", (1, 4), number) for number in range(COUNT)}
    with connected("grpc", served) as client:
        for name, value in values.items():
            inputs = [client.input("INPUT0", value), client.input("INPUT1", value)]
            client.async_infer(
                "add_sub", inputs, callback=lambda result, error: answers.put((result, error)), request_id=name
            )
        got = [answers.get(timeout=30) for _ in range(COUNT)]
    assert [error for _, error in got] == [None] * COUNT
    for result, _ in got:
        np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), 2 * values[result.get_response().id])

"""Instances without processes, for tests of what is done with them: each run waits until the test says what comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tonnage.errors import Unreachable
from tonnage.serve.budget import Budget
from tonnage.serve.configuration import Batching, ModelConfiguration, TensorSpec
from tonnage.serve.datatypes import Tensor
from tonnage.serve.instance_process import Died, InstancePlace, Turn, TurnFailed
from tonnage.serve.requests import Answer, Request, now
from tonnage.serve.served_version import ServedVersion


class FakeInstance:
    """Answers with its inputs, as outputs of the same names, when `finish` is called."""

    def __init__(self, factory: FakeInstances, order: Any, on_done: Any, on_end: Any, place: InstancePlace) -> None:
        self.order, self.place, self.pid = order, place, len(factory.made) + 1000
        self.turn: Any = None
        self.since = 0.0
        self.is_closed = False
        self.is_killed = False
        self.has_worked = False
        self.tensors: Any = None
        self.runs: list[list[str]] = []  # the ids of each batch
        self._factory, self._on_done, self._on_end = factory, on_done, on_end

    async def start(self, seconds: float) -> ModelConfiguration:  # noqa: ARG002 - as the real one
        await asyncio.sleep(0)
        if self._factory.deaths:
            self._factory.deaths -= 1
            self.is_closed = True
            raise Died("it died while it loaded the model")
        if self._factory.problem:
            self.is_closed = True
            raise Unreachable(self._factory.problem)
        configuration: ModelConfiguration = self.order.configuration
        return configuration

    def run(self, tensors: Any, wanted: tuple[str, ...]) -> None:  # noqa: ARG002 - as the real one
        if self._factory.refusal is not None:
            raise self._factory.refusal
        assert self.tensors is None, "it was given a turn while it had one"
        assert not self.is_closed, "it was given a turn after its end"
        self.tensors = [(name, kind, shape, memoryview(b"".join(parts))) for name, kind, shape, parts in tensors]
        self.runs.append([request.id for request in self.turn.requests])

    def finish(self) -> None:
        outputs, self.tensors, self.has_worked = self.tensors, None, True
        self._on_done(self, Turn(outputs, 1, 2, 3))

    def fail(self, message: str = "no", *, is_clients: bool = False) -> None:
        self.tensors = None
        self._on_done(self, TurnFailed(message, is_clients))

    def die(self) -> None:
        self.tensors, self.is_closed = None, True
        self._on_end(self)

    def close(self) -> None:
        self.is_closed = True

    def kill(self) -> None:
        self.is_killed = True

    async def reap(self, seconds: float = 5.0) -> str:  # noqa: ARG002 - as the real one
        return "killed by SIGKILL"


class FakeInstances:
    """Makes them, and knows all that it made."""

    def __init__(self) -> None:
        self.made: list[FakeInstance] = []
        self.problem = ""  # why no more can be started
        self.deaths = 0  # how many die while they load the model
        self.refusal: Exception | None = None  # what giving them work raises

    def __call__(self, order: Any, *, on_done: Any, on_end: Any, place: InstancePlace) -> Any:
        instance = FakeInstance(self, order, on_done, on_end, place)
        self.made.append(instance)
        return instance

    @property
    def alive(self) -> list[FakeInstance]:
        return [each for each in self.made if not each.is_closed]

    def finish_all(self) -> None:
        for each in self.alive:
            if each.tensors is not None:
                each.finish()


class Asked:
    """A request of one row, and all answers that it got."""

    def __init__(self, name: str, value: int = 0, *, rows: int = 1, columns: int = 1, **more: Any) -> None:
        data = bytes([value]) * (rows * columns)
        self.answers: list[Answer] = []
        tensor = Tensor("x", "UINT8", (rows, columns), data)
        self.request = Request("m", "", [tensor], self.answers.append, name, rows=rows, arrived=now(), **more)
        self.request.key = (("x", (columns,)),)


def configuration(*, batch: int = 8, batching: Batching | None = None, **more: Any) -> ModelConfiguration:
    spec = TensorSpec(name="x", datatype="UINT8", dims=(-1,))
    return ModelConfiguration(
        name="m",
        backend="onnxruntime",
        max_batch_size=batch,
        inputs=(spec,),
        outputs=(spec,),
        batching=batching,
        **more,
    )


def served(instances: FakeInstances, settings: ModelConfiguration, count: int = 1, budget: Budget | None = None) -> Any:
    places = [InstancePlace() for _ in range(count)]
    return ServedVersion(settings, 1, "onnxruntime", Path("model.onnx"), places, budget=budget, make_instance=instances)


async def settle(times: int = 20) -> None:
    """Everything that can happen without waiting happens."""
    for _ in range(times):
        await asyncio.sleep(0)


async def until(condition: Callable[[], object]) -> None:
    """For what needs a timer of the server."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)

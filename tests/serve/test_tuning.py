"""Which combination of instances and batches is chosen, and what is written of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import NoReturn

import pytest

from tonnage.errors import InvalidFile, TonnageError, UsageError
from tonnage.serve.configuration import Batching, InstanceGroup, ModelConfiguration, QueuePolicy
from tonnage.serve.tuning import Measured, Trial, Tuned, best_of, tune, with_settings


class FakeBench:
    """`speed` tells the rows a second of so many instances with such batches."""

    def __init__(self, speed: Callable[[int, int], float], rows: int = 32) -> None:
        self._speed, self._rows = speed, rows
        self.measured: list[ModelConfiguration] = []
        self.clients: list[int] = []
        self.problem: TonnageError | None = None
        self.is_closed = False

    async def close(self) -> None:
        self.is_closed = True

    async def learn(self, configuration: ModelConfiguration) -> ModelConfiguration:
        if self.problem is not None:
            raise self.problem
        return replace(configuration, max_batch_size=self._rows, backend="onnxruntime")

    async def measure(self, configuration: ModelConfiguration, clients: int) -> Measured:
        self.measured.append(configuration)
        self.clients.append(clients)
        batch = configuration.max_batch_size if configuration.batching is not None else 1
        speed = self._speed(configuration.groups[0].count, batch)
        return Measured(rows=round(speed * 10), seconds=10.0, times=[clients / speed] * 5)


def tuned(bench: FakeBench, base: ModelConfiguration | None = None, **options: object) -> Tuned:
    chosen = {"instances": [1, 2], "batches": [1, 4], **options}
    return asyncio.run(tune(base or ModelConfiguration(name="m"), bench, **chosen))  # type: ignore[arg-type]


def refusal(error: TonnageError) -> NoReturn:
    raise error


def trial(instances: int, batch: int, rows: float, p99: float = 0.01) -> Trial:
    return Trial(instances=instances, batch=batch, rows_second=rows, p99_seconds=p99)


def test_all_combinations_are_tried_with_twice_the_clients_that_they_can_take() -> None:
    bench = FakeBench(lambda count, batch: 100.0)
    found = tuned(bench)
    assert [(each.instances, each.batch) for each in found.trials] == [(1, 1), (1, 4), (2, 1), (2, 4)]
    assert bench.clients == [2, 8, 4, 16]


def test_the_fastest_is_best() -> None:
    found = tuned(FakeBench(lambda count, batch: 100.0 * batch * count))
    assert found.best == found.trials[3]
    assert found.configuration.max_batch_size == 4
    assert found.configuration.groups[0].count == 2


def test_of_equals_the_simplest_is_best() -> None:
    best = best_of([trial(1, 1, 98.0), trial(2, 1, 100.0), trial(2, 4, 100.5)])
    assert best is not None
    assert (best.instances, best.batch) == (1, 1)


def test_what_is_clearly_faster_is_worth_more_instances() -> None:
    best = best_of([trial(1, 1, 90.0), trial(2, 1, 100.0)])
    assert best is not None
    assert best.instances == 2


def test_only_what_answers_in_time_can_be_best() -> None:
    trials = [trial(1, 1, 50.0, p99=0.005), trial(1, 8, 200.0, p99=0.05)]
    assert best_of(trials, 0.01) == trials[0]
    assert best_of(trials, 0.001) is None


def test_without_anything_that_could_be_tried_there_is_no_best() -> None:
    assert best_of([Trial(instances=1, batch=1, problem="too large")]) is None


def test_a_batch_that_fails_with_one_instance_is_not_tried_with_more() -> None:
    bench = FakeBench(lambda count, batch: 100.0 if batch == 1 else refusal(InvalidFile("it holds no batch")))
    found = tuned(bench)
    assert [each.problem for each in found.trials] == ["", "it holds no batch", "", "it holds no batch"]
    assert len(bench.measured) == 3


def test_a_combination_that_fails_leaves_the_others() -> None:
    bench = FakeBench(lambda count, batch: 100.0 if count == 1 else refusal(UsageError("there is no memory for two")))
    found = tuned(bench)
    assert found.best == found.trials[0]
    assert found.trials[2].problem == "there is no memory for two"


def test_a_batch_that_was_only_too_slow_is_tried_with_more_instances() -> None:
    bench = FakeBench(lambda count, batch: 100.0 if count > 1 else refusal(UsageError("nothing was answered")))
    found = tuned(bench)
    assert [bool(each.problem) for each in found.trials] == [True, True, False, False]


def test_a_model_that_cannot_be_loaded_raises_why() -> None:
    bench = FakeBench(lambda count, batch: 1.0)
    bench.problem = InvalidFile("no model")
    with pytest.raises(InvalidFile, match="no model"):
        tuned(bench)


def test_without_batches_requests_may_have_as_many_rows_as_before() -> None:
    found = tuned(FakeBench(lambda count, batch: 100.0 / batch), instances=[1])
    assert found.configuration.max_batch_size == 32
    assert found.configuration.batching is None


def test_limits_of_the_queue_do_not_disturb_the_measurement_and_stay() -> None:
    queue = QueuePolicy(most_requests=2)
    base = ModelConfiguration(name="m", max_batch_size=8, batching=Batching(most_delay_seconds=0.002), queue=queue)
    bench = FakeBench(lambda count, batch: 100.0, rows=8)
    found = tuned(bench, base)
    assert {each.queue for each in bench.measured} == {QueuePolicy()}
    assert found.configuration.queue == queue
    assert found.configuration.batching == Batching(most_delay_seconds=0.002)


def test_each_group_gets_so_many_instances() -> None:
    groups = (InstanceGroup(count=1, gpus=(0,)), InstanceGroup(count=3, gpus=(1,)))
    found = with_settings(ModelConfiguration(name="m", groups=groups), 2, 1)
    assert [group.count for group in found.groups] == [2, 2]


def test_progress_counts() -> None:
    said: list[str] = []
    tuned(FakeBench(lambda count, batch: 1.0), progress=said.append)
    assert said[0] == "m: loading"
    assert said[-1] == "m: 2 x batch 4, 4 of 4"

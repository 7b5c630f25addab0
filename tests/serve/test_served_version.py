"""What becomes of requests when instances work, fail, die, hang or cannot be started."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fake_instances import Asked, FakeInstances, configuration, served, settle, until

from tonnage.errors import InvalidFile, Unreachable
from tonnage.serve import instance_pool
from tonnage.serve.budget import Budget
from tonnage.serve.configuration import DELAY, Batching, QueuePolicy
from tonnage.serve.errors import Busy, Cancelled, InvalidRequest, ServingError, Unavailable
from tonnage.serve.requests import Answer, Response


def run(test: Callable[[FakeInstances], Awaitable[None]]) -> None:
    asyncio.run(_bounded(test))


async def _bounded(test: Callable[[FakeInstances], Awaitable[None]]) -> None:
    async with asyncio.timeout(20):
        await test(FakeInstances())


async def loaded(instances: FakeInstances, count: int = 1, budget: Budget | None = None, **more: Any) -> Any:
    version = served(instances, configuration(**more), count, budget)
    await version.load()
    return version


def submit(version: Any, *asked: Asked) -> None:
    for each in asked:
        version.submit(each.request)


def data(answer: Answer) -> bytes:
    assert isinstance(answer, Response)
    return bytes(answer.outputs[0].data)


def test_a_batch_is_cut_into_the_answers_of_its_requests() -> None:
    async def test(instances: FakeInstances) -> None:
        version = await loaded(instances, batching=Batching())
        first, second = Asked("a", 1, rows=2), Asked("b", 2, rows=3)
        submit(version, first, second)
        await settle()
        instances.finish_all()
        assert instances.made[0].runs == [["a", "b"]]
        assert [data(answer) for answer in (*first.answers, *second.answers)] == [b"\1\1", b"\2\2\2"]
        assert version.statistics.inferences == 5
        assert version.statistics.executions == 1
        await version.close()

    run(test)


def test_a_request_runs_once_more_when_its_instance_dies() -> None:
    async def test(instances: FakeInstances) -> None:
        version = await loaded(instances, batching=Batching())
        asked = [Asked(name, number) for number, name in enumerate("abc")]
        submit(version, *asked)
        await settle()
        instances.made[0].die()
        await settle()
        assert version.pids == [1001]
        for _ in asked:
            instances.finish_all()
        assert instances.made[1].runs == [["a"], ["b"], ["c"]]
        assert [[data(answer) for answer in each.answers] for each in asked] == [[b"\0"], [b"\1"], [b"\2"]]
        assert version.restarts == 1
        await version.close()

    run(test)


def test_a_request_of_which_two_instances_die_fails_once() -> None:
    async def test(instances: FakeInstances) -> None:
        version = await loaded(instances)
        asked, other = Asked("a"), Asked("b")
        submit(version, asked)
        await settle()
        instances.made[0].die()
        await settle()
        submit(version, other)
        instances.made[1].die()
        await until(lambda: len(instances.alive) == 1 and instances.alive[0].tensors is not None)
        instances.finish_all()
        assert [type(answer) for answer in asked.answers] == [ServingError]
        assert [type(answer) for answer in other.answers] == [Response]
        await version.close()

    run(test)


def test_an_idle_instance_that_dies_is_replaced() -> None:
    async def test(instances: FakeInstances) -> None:
        version = await loaded(instances, 2)
        instances.made[0].die()
        await settle()
        assert sorted(version.pids) == [1001, 1002]
        assert version.running == 0
        await version.close()

    run(test)


def test_only_the_one_that_is_wrong_fails_of_a_batch() -> None:
    async def test(instances: FakeInstances) -> None:
        version = await loaded(instances, batching=Batching())
        asked = [Asked(name) for name in "abc"]
        submit(version, *asked)
        await settle()
        instance = instances.made[0]
        instance.fail("one of them is wrong")
        instance.finish()
        instance.fail("it is this one", is_clients=True)
        instance.finish()
        assert [[type(answer) for answer in each.answers] for each in asked] == [
            [Response], [InvalidRequest], [Response]
        ]  # fmt: skip
        await version.close()

    run(test)


def test_a_run_that_does_not_end_is_killed_and_its_request_fails() -> None:
    async def test(instances: FakeInstances) -> None:
        version = await loaded(instances, parameters={"run_timeout_seconds": "0.02"})
        asked, other = Asked("a"), Asked("b")
        submit(version, asked, other)
        await until(lambda: asked.answers)
        assert instances.made[0].is_killed
        await until(lambda: len(instances.made) == 2 and instances.made[1].tensors is not None)
        instances.made[1].finish()
        assert "did not end within 0.02 s" in str(asked.answers[0])
        assert [type(answer) for answer in other.answers] == [Response]
        assert len(asked.answers) == 1
        await version.close()

    run(test)


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "soon"])
def test_an_impossible_limit_of_runs_is_refused(seconds: str) -> None:
    async def test(instances: FakeInstances) -> None:
        with pytest.raises(InvalidFile, match="run_timeout_seconds"):
            await loaded(instances, parameters={"run_timeout_seconds": seconds})

    run(test)


def test_a_client_that_goes_takes_its_waiting_request_along() -> None:
    async def test(instances: FakeInstances) -> None:
        budget = Budget()
        version = await loaded(instances, budget=budget)
        running, waiting = Asked("a"), Asked("b")
        submit(version, running, waiting)
        await settle()
        waiting.request.cancel()
        running.request.cancel()
        assert [type(answer) for answer in waiting.answers] == [Cancelled]
        assert not running.answers
        instances.finish_all()
        await settle()
        assert instances.made[0].runs == [["a"]]
        assert [type(answer) for answer in running.answers] == [Response]
        assert version.statistics.failures == {"CANCELED": 1}
        assert budget.used == 0
        await version.close()

    run(test)


def test_the_bytes_of_all_requests_are_bounded() -> None:
    async def test(instances: FakeInstances) -> None:
        budget = Budget(10)
        version = await loaded(instances, budget=budget)
        first = Asked("a", rows=6)
        submit(version, first)
        with pytest.raises(Busy, match="hold 6 of 10"):
            submit(version, Asked("b", rows=5))
        submit(version, Asked("c", rows=4))
        assert budget.used == 10
        await version.close()
        assert budget.used == 0

    run(test)


def test_a_refused_request_is_counted_and_holds_nothing() -> None:
    async def test(instances: FakeInstances) -> None:
        budget = Budget()
        version = await loaded(instances, budget=budget, queue=QueuePolicy(most_requests=1))
        submit(version, Asked("a"))
        with pytest.raises(Busy):
            submit(version, Asked("b"))
        assert version.statistics.failures == {"REJECTED": 1}
        assert budget.used == 1
        await version.close()

    run(test)


def test_a_request_that_waited_too_long_is_told_so() -> None:
    async def test(instances: FakeInstances) -> None:
        version = await loaded(instances)
        running, late = Asked("a"), Asked("b", timeout_seconds=0.01)
        submit(version, running)
        await settle()
        submit(version, late)
        await until(lambda: late.answers)
        assert type(late.answers[0]) is Unavailable
        assert "too long" in str(late.answers[0])
        instances.finish_all()
        await settle()
        assert instances.made[0].runs == [["a"]]
        await version.close()

    run(test)


def test_a_request_whose_time_is_over_is_not_tried_again() -> None:
    async def test(instances: FakeInstances) -> None:
        version = await loaded(instances)
        asked = Asked("a", timeout_seconds=0.01)
        submit(version, asked)
        await settle()
        await asyncio.sleep(0.02)
        assert not asked.answers
        instances.made[0].die()
        assert [type(answer) for answer in asked.answers] == [Unavailable]
        await version.close()

    run(test)


def test_where_the_policy_is_to_delay_a_late_request_runs_last() -> None:
    async def test(instances: FakeInstances) -> None:
        version = await loaded(instances, queue=QueuePolicy(timeout_action=DELAY))
        asked = [Asked("a"), Asked("late", timeout_seconds=0.01), Asked("c")]
        submit(version, asked[0])
        await settle()
        submit(version, *asked[1:])
        await asyncio.sleep(0.02)
        for _ in asked:
            instances.finish_all()
        assert instances.made[0].runs == [["a"], ["c"], ["late"]]
        assert all(type(each.answers[0]) is Response for each in asked)
        await version.close()

    run(test)


def test_clients_may_not_wait_longer_than_the_policy_has_it() -> None:
    async def test(instances: FakeInstances) -> None:
        policy = QueuePolicy(timeout_seconds=0.01, allow_timeout_override=False)
        version = await loaded(instances, queue=policy)
        submit(version, Asked("a"))
        await settle()
        late = Asked("b", timeout_seconds=100.0)
        submit(version, late)
        await until(lambda: late.answers)
        await version.close()

    run(test)


def test_answers_come_in_the_order_of_requests_where_that_is_asked_for() -> None:
    async def test(instances: FakeInstances) -> None:
        version = await loaded(instances, 2, batch=1, batching=Batching(preserve_ordering=True))
        order: list[str] = []
        asked = [Asked(name) for name in "ab"]
        for each in asked:
            each.request.answer = lambda answer, name=each.request.id: order.append(name)
        submit(version, *asked)
        await settle()
        busy = {each.runs[0][0]: each for each in instances.made}
        busy["b"].finish()
        assert order == []
        busy["a"].finish()
        assert order == ["a", "b"]
        await version.close()

    run(test)


def test_an_answer_that_cannot_be_given_spares_the_others() -> None:
    async def test(instances: FakeInstances) -> None:
        version = await loaded(instances, batching=Batching())
        broken, fine = Asked("a"), Asked("b")
        told: list[Answer] = []

        def answer(result: Answer) -> None:
            if isinstance(result, Response):
                raise RuntimeError("the encoder is broken")
            told.append(result)

        broken.request.answer = answer
        submit(version, broken, fine)
        await settle()
        instances.finish_all()
        assert [type(each) for each in told] == [ServingError]
        assert [type(each) for each in fine.answers] == [Response]
        await version.close()

    run(test)


def test_inputs_that_cannot_be_handed_over_fail_and_the_instance_goes_on() -> None:
    async def test(instances: FakeInstances) -> None:
        version = await loaded(instances)
        instances.refusal = OSError(12, "Cannot allocate memory")
        asked = Asked("a")
        submit(version, asked)
        await settle()
        assert [type(answer) for answer in asked.answers] == [ServingError]
        instances.refusal = None
        other = Asked("b")
        submit(version, other)
        await settle()
        instances.finish_all()
        assert [type(answer) for answer in other.answers] == [Response]
        await version.close()

    run(test)


def test_who_waits_is_told_when_no_instance_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance_pool, "_FIRST_PAUSE", 0.001)

    async def test(instances: FakeInstances) -> None:
        version = await loaded(instances)
        asked = Asked("a")
        submit(version, asked)
        await settle()
        instances.problem = "the file is gone"
        instances.made[0].die()
        await until(lambda: asked.answers)
        assert type(asked.answers[0]) is Unavailable
        with pytest.raises(Unavailable, match="the file is gone"):
            submit(version, Asked("b"))
        instances.problem = ""
        await until(lambda: version.is_ready)
        again = Asked("c")
        submit(version, again)
        await settle()
        instances.finish_all()
        assert [type(answer) for answer in again.answers] == [Response]
        await version.close()

    run(test)


def test_an_instance_that_is_killed_while_it_loads_is_tried_once_more() -> None:
    async def check(instances: FakeInstances) -> None:
        instances.deaths = 1
        version = served(instances, configuration())
        await version.load()
        assert (len(instances.made), len(instances.alive), version.restarts) == (2, 1, 0)
        await version.close()

        instances.deaths = 2
        with pytest.raises(Unreachable, match="died while it loaded"):
            await served(instances, configuration()).load()
        assert instances.alive == []

    run(check)


def test_where_one_instance_cannot_load_none_is_left() -> None:
    async def test(instances: FakeInstances) -> None:
        instances.problem = "no such operator"
        with pytest.raises(Unreachable, match="no such operator"):
            await loaded(instances, 3)
        assert not instances.alive

    run(test)


def test_a_retired_version_answers_what_it_has_and_ends() -> None:
    async def test(instances: FakeInstances) -> None:
        version = await loaded(instances)
        asked = [Asked("a"), Asked("b")]
        submit(version, *asked)
        await settle()
        retiring = asyncio.create_task(version.retire())
        await settle()
        with pytest.raises(Unavailable):
            submit(version, Asked("c"))
        assert not retiring.done()
        instances.finish_all()
        instances.finish_all()
        await retiring
        assert [[type(answer) for answer in each.answers] for each in asked] == [[Response], [Response]]
        assert not instances.alive

    run(test)


def test_retiring_ends_when_the_last_request_dies_with_its_instance() -> None:
    async def test(instances: FakeInstances) -> None:
        version = await loaded(instances)
        asked = Asked("a")
        submit(version, asked)
        await settle()
        instances.made[0].die()
        await settle()
        retiring = asyncio.create_task(version.retire())
        await settle()
        instances.made[1].die()
        await retiring
        assert [type(answer) for answer in asked.answers] == [ServingError]

    run(test)


def test_retiring_ends_when_the_last_request_waits_no_longer() -> None:
    async def test(instances: FakeInstances) -> None:
        version = await loaded(instances)
        asked = Asked("a", timeout_seconds=0.02)
        instances.problem = "not now"
        instances.made[0].die()
        submit(version, asked)
        await version.retire()
        assert [type(answer) for answer in asked.answers] == [Unavailable]

    run(test)


def test_closing_tells_everybody_and_leaves_no_task() -> None:
    async def test(instances: FakeInstances) -> None:
        version = await loaded(instances, 2)
        asked = [Asked(str(number)) for number in range(5)]
        submit(version, *asked)
        await settle()
        instances.made[0].die()
        await version.close()
        assert [[type(answer) for answer in each.answers] for each in asked] == [[Unavailable]] * 5
        assert not instances.alive
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(test)


@pytest.mark.parametrize("seed", range(30))
def test_each_request_is_answered_once_whatever_happens_to_instances(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance_pool, "_FIRST_PAUSE", 0.0)

    async def test(instances: FakeInstances) -> None:
        chance, budget = random.Random(seed), Budget()
        batching = Batching(preserve_ordering=seed % 2 == 1)
        version = await loaded(instances, 3, budget, batch=4, batching=batching)
        asked: list[Asked] = []
        for number in range(200):
            asked.append(Asked(str(number), number, rows=chance.randint(1, 3), columns=chance.randint(1, 2)))
            submit(version, asked[-1])
            await settle(chance.randint(0, 3))
            busy = [each for each in instances.alive if each.tensors is not None]
            if busy:
                action = chance.choices(("finish", "fail", "die"), (8, 1, 1))[0]
                getattr(chance.choice(busy), action)()
            if chance.random() < 0.1:
                chance.choice(asked).request.cancel()
        retiring = asyncio.create_task(version.retire())
        while not retiring.done():
            instances.finish_all()
            await asyncio.sleep(0)
        assert [len(each.answers) for each in asked] == [1] * 200
        for each in asked:
            if isinstance(each.answers[0], Response):
                assert data(each.answers[0]) == bytes(each.request.inputs[0].data)
        assert budget.used == 0
        assert not instances.alive

    run(test)

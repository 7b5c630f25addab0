"""Who waits for a model, and who runs together."""

from __future__ import annotations

from typing import Any

import pytest
from fake_instances import Asked, configuration
from hypothesis import given
from hypothesis import strategies as st

from tonnage.serve.configuration import Batching, QueuePolicy
from tonnage.serve.errors import Busy
from tonnage.serve.queue import Batch, Queue, Reason
from tonnage.serve.requests import Request


def request(name: str, arrived: float = 0.0, **more: Any) -> Request:
    made = Asked(name, **more).request
    made.arrived = arrived
    return made


def ids(batch: object) -> list[str]:
    assert isinstance(batch, Batch)
    return [each.id for each in batch.requests]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 4), st.integers(1, 2), st.integers(0, 5)),
        st.tuples(st.just("run"), st.just(0), st.just(0), st.just(0)),
        st.tuples(st.just("fail"), st.just(0), st.just(0), st.just(0)),
        st.tuples(st.just("remove"), st.integers(0, 50), st.just(0), st.just(0)),
        st.tuples(st.just("delay"), st.integers(0, 50), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@given(steps, st.sampled_from([0, 3]), st.sets(st.integers(1, 4), max_size=2), st.booleans())
def test_nothing_is_lost_or_doubled_and_no_batch_is_too_large(
    steps: list[tuple[str, int, int, int]], levels: int, preferred: set[int], batches: bool
) -> None:
    batching = Batching(preferred_sizes=tuple(preferred)) if batches else None
    queue = Queue(configuration(batch=4, batching=batching, priority_levels=levels, default_priority=min(levels, 2)))
    added: list[Request] = []
    gone: list[Request] = []
    for kind, first, columns, priority in steps:
        if kind == "add":
            added.append(request(str(len(added)), rows=first, columns=columns, priority=priority))
            queue.add(added[-1])
        elif kind in ("run", "fail"):
            batch = queue.next_batch(1.0)
            if batch is None:
                assert len(added) == len(gone)
                continue
            assert isinstance(batch, Batch)
            assert batch.rows == sum(each.rows for each in batch.requests) <= 4
            assert len({each.key for each in batch.requests}) == 1
            assert len({each.priority for each in batch.requests}) == 1
            if kind == "fail":
                queue.put_back(batch.requests)
            else:
                gone += batch.requests
        elif first < len(added) and kind == "remove":
            if queue.remove(added[first]):
                gone.append(added[first])
        elif first < len(added):
            queue.delay(added[first])
        assert len(queue) == len(added) - len(gone)
    gone += queue.drain()
    assert sorted(gone, key=id) == sorted(added, key=id)
    assert len(queue) == 0
    assert not any(each.is_waiting for each in added)


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 2)), max_size=30))
def test_requests_of_one_priority_run_in_the_order_in_which_they_came(given: list[tuple[int, int]]) -> None:
    queue = Queue(configuration(batch=4, batching=Batching(preferred_sizes=(3,))))
    for number, (rows, columns) in enumerate(given):
        queue.add(request(str(number), rows=rows, columns=columns))
    run: list[str] = []
    while (batch := queue.next_batch(1.0)) is not None:
        run += ids(batch)
    assert run == [str(number) for number in range(len(given))]


def test_without_batching_each_runs_alone() -> None:
    queue = Queue(configuration(batch=8))
    for name in "ab":
        queue.add(request(name))
    batch = queue.next_batch(0.0)
    assert ids(batch) == ["a"]
    assert isinstance(batch, Batch)
    assert batch.reason is Reason.SINGLE


def test_other_shapes_do_not_run_together() -> None:
    queue = Queue(configuration(batching=Batching()))
    queue.add(request("a"))
    queue.add(request("b", columns=2))
    batch = queue.next_batch(0.0)
    assert ids(batch) == ["a"]
    assert isinstance(batch, Batch)
    assert batch.reason is Reason.SHAPE


def test_the_first_waits_for_others_until_its_delay_is_over() -> None:
    queue = Queue(configuration(batch=3, batching=Batching(most_delay_seconds=0.5)))
    queue.add(request("a", arrived=10.0))
    assert queue.next_batch(10.1) == 10.5
    queue.add(request("b", arrived=10.2))
    assert queue.next_batch(10.3) == 10.5
    batch = queue.next_batch(10.5)
    assert ids(batch) == ["a", "b"]
    assert isinstance(batch, Batch)
    assert batch.reason is Reason.DELAY


def test_a_full_batch_does_not_wait() -> None:
    queue = Queue(configuration(batch=2, batching=Batching(most_delay_seconds=0.5)))
    for name in "abc":
        queue.add(request(name, arrived=10.0))
    batch = queue.next_batch(10.0)
    assert ids(batch) == ["a", "b"]
    assert isinstance(batch, Batch)
    assert batch.reason is Reason.FULL


def test_the_largest_preferred_size_is_taken_at_once() -> None:
    queue = Queue(configuration(batch=8, batching=Batching(preferred_sizes=(2, 4), most_delay_seconds=9.0)))
    for name in "abcde":
        queue.add(request(name, arrived=10.0))
    batch = queue.next_batch(10.0)
    assert ids(batch) == ["a", "b", "c", "d"]
    assert isinstance(batch, Batch)
    assert batch.reason is Reason.PREFERRED


def test_priority_one_comes_before_two_and_unknown_ones_are_the_default() -> None:
    queue = Queue(configuration(priority_levels=3, default_priority=2))
    for name, priority in (("third", 3), ("second", 2), ("default", 0), ("unknown", 77), ("first", 1)):
        queue.add(request(name, priority=priority))
    run = [ids(queue.next_batch(0.0))[0] for _ in range(5)]
    assert run == ["first", "second", "default", "unknown", "third"]


def test_levels_that_clients_choose_do_not_stay() -> None:
    queue = Queue(configuration(priority_levels=1_000_000, default_priority=1))
    for priority in range(1, 1000):
        queue.add(request("a", priority=priority))
        queue.next_batch(0.0)
    assert len(queue._levels) < 100


def test_what_is_put_back_runs_first_and_alone() -> None:
    queue = Queue(configuration(batching=Batching(), priority_levels=2, default_priority=2))
    for name in "ab":
        queue.add(request(name, priority=2))
    batch = queue.next_batch(0.0)
    assert isinstance(batch, Batch)
    queue.add(request("c", priority=1))
    queue.put_back(batch.requests)
    assert [ids(queue.next_batch(0.0)) for _ in range(3)] == [["a"], ["b"], ["c"]]


def test_a_full_queue_refuses_and_others_have_their_own_limits() -> None:
    policies = {1: QueuePolicy(most_requests=1), 2: QueuePolicy(most_requests=2)}
    queue = Queue(configuration(priority_levels=2, default_priority=2, level_policies=policies))
    queue.add(request("a", priority=1))
    with pytest.raises(Busy, match="its queue is full"):
        queue.add(request("b", priority=1))
    queue.add(request("c", priority=2))
    queue.add(request("d", priority=2))
    assert len(queue) == 3


def test_a_late_request_comes_after_the_others_of_its_priority() -> None:
    queue = Queue(configuration(priority_levels=2, default_priority=1))
    late, other, less = request("late", priority=1), request("other", priority=1), request("less", priority=2)
    for each in (late, other, less):
        queue.add(each)
    queue.delay(late)
    assert [ids(queue.next_batch(0.0))[0] for _ in range(3)] == ["other", "late", "less"]

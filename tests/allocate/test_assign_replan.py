"""A plan after a change keeps what it can."""

from dataclasses import replace

import numpy as np
import pytest
from assign_instances import instance, longest, optimum, tiny_instances
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.allocate.assign import Instance, check, least_makespan, replan
from tonnage.errors import UsageError


@settings(deadline=None, max_examples=60)
@given(tiny_instances(), st.data())
def test_after_an_arrival_bound_and_value_enclose_the_optimum(tiny: Instance, data: st.DataObject) -> None:
    known = tiny.of_tasks(np.arange(max(tiny.size - data.draw(st.integers(1, 2)), 0)))
    found = replan(least_makespan(known, keep_going=lambda: False), tiny).assigned
    best = optimum(tiny, np.flatnonzero(found.types >= 0), longest)
    assert found.bound <= best * (1 + 1e-6)
    assert best <= found.value * (1 + 1e-6)
    assert check.makespan(tiny, found) == pytest.approx(found.value)


@settings(deadline=None, max_examples=60)
@given(tiny_instances(), st.data())
def test_after_a_departure_bound_and_value_enclose_the_optimum(tiny: Instance, data: st.DataObject) -> None:
    left = np.array(
        sorted(data.draw(st.sets(st.integers(0, tiny.size - 1)) if tiny.size else st.just(set()))), dtype=np.int64
    )
    smaller = tiny.of_tasks(left)
    found = replan(least_makespan(tiny, keep_going=lambda: False), smaller, was=left).assigned
    best = optimum(smaller, np.flatnonzero(found.types >= 0), longest)
    assert found.bound <= best * (1 + 1e-6)
    assert best <= found.value * (1 + 1e-6)
    assert check.makespan(smaller, found) == pytest.approx(found.value)


def test_a_small_arrival_moves_nobody() -> None:
    some = many()
    last = least_makespan(some, enough_gap=0.03)
    lightest = np.vstack([some.seconds, np.full((1, 2), 1e-3)])
    more = replace(some, seconds=lightest, memory_bytes=np.vstack([some.memory_bytes, [[1, 1]]]), weights=np.ones(201))
    after = replan(last, more)
    assert len(after.moved) == 0
    assert after.assigned.types[200] >= 0


def test_of_a_lost_gpu_the_tasks_move_and_the_others_are_called_by_their_new_numbers() -> None:
    three = instance([[5.0], [3.0], [1.0]], counts=[3])
    last = least_makespan(three)
    lost = int(last.gpus[1])
    after = replan(last, replace(three, counts=np.array([2])), lost=[(0, lost)])
    assert 1 in after.moved
    assert check.makespan(replace(three, counts=np.array([2])), after.assigned) == after.assigned.value == 5.0


def test_after_a_departure_nobody_has_to_move() -> None:
    some = many()
    last = least_makespan(some, enough_gap=0.03)
    left = np.arange(1, 200)
    after = replan(last, some.of_tasks(left), was=left)
    assert len(after.moved) == 0
    assert after.assigned.value <= last.value


def test_a_task_for_which_there_is_no_room_is_listed() -> None:
    last = least_makespan(instance([[1.0]], counts=[1], memory=[60]))
    after = replan(last, instance([[1.0], [1.0]], counts=[1], memory=[60, 60]))
    assert after.assigned.unplaced.tolist() == [1]


def test_fewer_tasks_without_saying_which_are_refused() -> None:
    with pytest.raises(UsageError, match="fewer"):
        replan(least_makespan(instance([[1.0], [1.0]], counts=[1])), instance([[1.0]], counts=[1]))


def many() -> Instance:
    random = np.random.default_rng(2)
    return instance(
        random.uniform(1, 9, (200, 2)).tolist(), counts=[20, 20], memory=random.integers(1, 30, 200).tolist()
    )

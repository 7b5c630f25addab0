"""Prices for long queues: near the linear program, within the GPUs, with pairs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from speed_tables import queue, table

from tonnage.allocate.linear import most_valuable
from tonnage.allocate.priced import market_prices, most_valuable_whole
from tonnage.allocate.queue import Queue

waiting_tasks = st.lists(st.tuples(st.integers(0, 7), st.floats(10.0, 1e5)), min_size=1, max_size=40).map(
    lambda tasks: queue(table(), [8, 8, 16], [number for number, _ in tasks], [steps for _, steps in tasks])
)


def value_of(waiting: Queue) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.asarray(1.0 / waiting.left_steps)


@settings(deadline=None, max_examples=60)
@given(waiting_tasks)
def test_placements_fit_and_nobody_runs_twice(waiting: Queue) -> None:
    columns = most_valuable_whole(waiting, value_of(waiting)).columns
    tasks = np.concatenate([columns.firsts, columns.seconds[columns.seconds >= 0]])
    assert (np.bincount(columns.types, columns.gpus, 3) <= waiting.capacity).all()
    assert len(tasks) == len(set(tasks.tolist()))


@settings(deadline=None, max_examples=60)
@given(waiting_tasks)
def test_no_gpus_idle_that_a_waiting_task_could_use(waiting: Queue) -> None:
    columns = most_valuable_whole(waiting, value_of(waiting)).columns
    free = waiting.capacity - np.bincount(columns.types, columns.gpus, 3)
    waits = np.setdiff1d(np.arange(waiting.size), np.concatenate([columns.firsts, columns.seconds]))
    assert not (waiting.gpus[waits][:, None] <= free).any()


@settings(deadline=None, max_examples=60)
@given(waiting_tasks)
def test_whole_placements_are_never_worth_more_than_the_linear_program(waiting: Queue) -> None:
    value = value_of(waiting)
    assert most_valuable_whole(waiting, value).value <= most_valuable(waiting, value).value * (1 + 1e-6)


def test_whole_placements_of_many_tasks_come_near_the_linear_program() -> None:
    random = np.random.default_rng(0)
    waiting = queue(table(), [40, 60, 80], random.choice(6, 300).tolist(), (random.lognormal(8.0, 1.0, 300)).tolist())
    value = value_of(waiting)
    assert most_valuable_whole(waiting, value).value >= 0.93 * most_valuable(waiting, value).value


def test_a_price_is_what_the_first_task_without_room_would_pay() -> None:
    worth = np.array([[5.0], [4.0], [3.0], [2.0]])
    assert market_prices(worth, np.ones(4, dtype=np.int64), np.array([2])) == pytest.approx([3.0])


def test_gpus_that_nobody_lacks_cost_nothing() -> None:
    worth = np.array([[5.0, 1.0], [4.0, 2.0]])
    assert market_prices(worth, np.ones(2, dtype=np.int64), np.array([2, 2])) == pytest.approx([0.0, 0.0])

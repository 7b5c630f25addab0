"""Shares become slices in which whole tasks run on whole GPUs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from speed_tables import queue, table

from tonnage.allocate.linear import most_even
from tonnage.allocate.queue import Queue
from tonnage.allocate.slices import cut

waiting_tasks = st.lists(st.tuples(st.integers(0, 5), st.floats(10.0, 1e5)), min_size=1, max_size=12).map(
    lambda tasks: queue(table(), [4, 4, 4], [number for number, _ in tasks], [steps for _, steps in tasks])
)


@settings(deadline=None, max_examples=40)
@given(waiting_tasks)
def test_a_slice_never_uses_more_gpus_than_there_are(waiting: Queue) -> None:
    shares = most_even(waiting, 1.0 / waiting.left_steps)
    for piece in cut(shares, waiting.capacity, waiting.size):
        columns = shares.columns.chosen(piece.columns)
        assert (np.bincount(columns.types, columns.gpus, 3) <= waiting.capacity).all()


@settings(deadline=None, max_examples=40)
@given(waiting_tasks)
def test_a_task_is_in_a_slice_once(waiting: Queue) -> None:
    shares = most_even(waiting, 1.0 / waiting.left_steps)
    for piece in cut(shares, waiting.capacity, waiting.size):
        columns = shares.columns.chosen(piece.columns)
        tasks = np.concatenate([columns.firsts, columns.seconds[columns.seconds >= 0]])
        assert len(tasks) == len(set(tasks.tolist()))


@settings(deadline=None, max_examples=40)
@given(waiting_tasks, st.floats(0.0, 1.0))
def test_slices_fill_the_period_and_none_is_shorter_than_allowed(waiting: Queue, least: float) -> None:
    parts = [
        piece.part for piece in cut(most_even(waiting, 1.0 / waiting.left_steps), waiting.capacity, waiting.size, least)
    ]
    assert sum(parts) == pytest.approx(1.0, abs=1e-5)
    assert min(parts) >= least - 1e-9


def test_single_gpu_tasks_get_their_exact_shares() -> None:
    waiting = queue(table(pairs=False), [2, 0, 0], [1, 1, 1], [100.0, 200.0, 300.0])
    shares = most_even(waiting, 1.0 / waiting.left_steps)
    given_parts = np.zeros(shares.columns.size)
    for piece in cut(shares, waiting.capacity, waiting.size):
        given_parts[piece.columns] += piece.part
    assert given_parts == pytest.approx(shares.shares, abs=1e-4)

"""Shares become whole columns that fit and are worth as much as can be found."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from speed_tables import queue, table

from tonnage.allocate.linear import most_valuable
from tonnage.allocate.queue import Queue
from tonnage.allocate.rounding import rounded

waiting_tasks = st.lists(st.tuples(st.integers(0, 7), st.floats(10.0, 1e5)), min_size=1, max_size=20).map(
    lambda tasks: queue(table(), [8, 8, 8], [number for number, _ in tasks], [steps for _, steps in tasks])
)


@settings(deadline=None, max_examples=60)
@given(waiting_tasks)
def test_whole_columns_fit_and_are_worth_no_more_than_the_linear_program(waiting: Queue) -> None:
    value = 1.0 / waiting.left_steps
    shares = most_valuable(waiting, value)
    whole = rounded(waiting, value, shares)
    columns = whole.columns.chosen(np.flatnonzero(whole.shares))
    tasks = np.concatenate([columns.firsts, columns.seconds[columns.seconds >= 0]])
    assert set(whole.shares.tolist()) <= {0.0, 1.0}
    assert (np.bincount(columns.types, columns.gpus, 3) <= waiting.capacity).all()
    assert len(tasks) == len(set(tasks.tolist()))
    assert whole.value <= shares.value * (1 + 1e-6)


def test_a_gang_comes_before_one_that_has_more_of_the_period_and_is_worth_less() -> None:
    waiting = queue(table(pairs=False), [8, 0, 0], [6, 0], [100.0, 100.0])
    value = np.array([1.0, 0.1]) / waiting.best_speeds
    whole = rounded(waiting, value, most_valuable(waiting, value))
    assert whole.columns.firsts[whole.shares > 0].tolist() == [0]


def test_who_loses_its_place_to_a_gang_goes_to_another_type() -> None:
    waiting = queue(table(pairs=False), [8, 1, 0], [6, 0], [100.0, 100.0])
    value = np.array([10.0, 2.0]) / waiting.best_speeds
    whole = rounded(waiting, value, most_valuable(waiting, value))
    chosen = whole.columns.chosen(np.flatnonzero(whole.shares))
    assert dict(zip(chosen.firsts.tolist(), chosen.types.tolist(), strict=True)) == {0: 0, 1: 1}

"""Linear programs over tasks and types, against cases that can be worked out by hand."""

import numpy as np
import pytest
from speed_tables import queue, table

from tonnage.allocate.linear import Promises, most_even, most_valuable


def test_the_fast_gpu_goes_to_the_task_that_gains_most_from_it() -> None:
    waiting = queue(table(pairs=False), [1, 1, 0], [0, 1], [100.0, 100.0])
    shares = most_valuable(waiting, 1.0 / waiting.best_speeds)
    running = {(int(task), int(kind)) for task, kind in zip(shares.columns.firsts, shares.columns.types, strict=True)
               if shares.shares[_index(shares, task, kind)] > 0.5}  # fmt: skip
    assert running == {(0, 0), (1, 1)}


def _index(shares: object, task: int, kind: int) -> int:
    columns = shares.columns  # type: ignore[attr-defined]
    return int(np.flatnonzero((columns.firsts == task) & (columns.types == kind) & (columns.seconds < 0))[0])


def test_two_tasks_share_a_gpu_where_both_together_make_more() -> None:
    waiting = queue(table(), [1, 0, 0], [1, 1], [100.0, 100.0])
    shares = most_valuable(waiting, 1.0 / waiting.best_speeds)
    assert shares.value == pytest.approx(1.4)


def test_without_pairs_one_gpu_makes_one_tasks_worth() -> None:
    waiting = queue(table(pairs=False), [1, 0, 0], [1, 1], [100.0, 100.0])
    assert most_valuable(waiting, 1.0 / waiting.best_speeds).value == pytest.approx(1.0)


def test_prices_and_tasks_pay_for_the_whole_value() -> None:
    waiting = queue(table(), [2, 2, 2], [0, 1, 0, 1, 2, 3, 0], [100.0] * 7)
    shares = most_valuable(waiting, 1.0 / waiting.best_speeds)
    paid = (shares.type_prices * waiting.capacity).sum() + shares.task_prices.sum()
    assert paid == pytest.approx(shares.value, rel=1e-6)


def test_all_end_together_as_early_as_possible() -> None:
    waiting = queue(table(pairs=False), [1, 0, 0], [1, 1, 1], [400.0, 400.0, 800.0])
    assert 1.0 / most_even(waiting, 1.0 / waiting.left_steps).value == pytest.approx(1600.0 / 4.0)


def test_a_promise_makes_room_for_a_task_that_is_worth_little() -> None:
    waiting = queue(table(pairs=False), [1, 0, 0], [1, 1], [400.0, 3600.0])
    value = np.array([1.0, 1e-3])
    free = most_valuable(waiting, value)
    promises = Promises(period_seconds=np.array([900.0, 100.0]), last_periods=np.ones(2, dtype=np.int64))
    bound = most_valuable(waiting, value, promises)
    assert free.shares[_index(free, 1, 0)] == pytest.approx(0.0, abs=1e-6)
    assert bound.shares[_index(bound, 1, 0)] == pytest.approx(8 / 9, abs=1e-6)


def test_a_task_that_is_all_but_done_does_not_upset_the_solver() -> None:
    waiting = queue(table(), [1, 1, 1], [0, 1, 1], [1e-9, 1e9, 100.0])
    assert most_even(waiting, 1.0 / waiting.left_steps).value > 0

"""The least sum of costs, with and without a deadline."""

import numpy as np
import pytest
from assign_instances import cheapest, instance, optimum, tiny_instances
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.allocate.assign import Instance, check, least_sum
from tonnage.errors import UsageError


@settings(deadline=None, max_examples=80)
@given(tiny_instances(), st.sampled_from([8.0, 20.0, float("inf")]), st.integers(0, 10**6))
def test_bound_and_value_enclose_the_optimum(tiny: Instance, deadline: float, seed: int) -> None:
    cost = np.random.default_rng(seed).uniform(1, 9, tiny.seconds.shape)
    found = least_sum(tiny, cost, deadline_seconds=deadline)
    best = optimum(tiny, np.flatnonzero(found.types >= 0), cheapest(cost, deadline))
    assert found.bound <= best * (1 + 1e-6)
    assert best <= found.value * (1 + 1e-6)
    assert check.makespan(tiny, found) <= deadline
    assert check.total_cost(tiny, found, cost) == pytest.approx(found.value)


def test_without_limits_every_task_runs_where_it_is_cheapest() -> None:
    found = least_sum(instance([[1.0, 1.0]] * 3, counts=[1, 1]), np.array([[1.0, 2.0], [2.0, 1.0], [3.0, 9.0]]))
    assert found.types.tolist() == [0, 1, 0]
    assert found.value == found.bound == 5.0


def test_a_deadline_moves_tasks_to_dearer_gpus_and_prices_tell_what_it_costs() -> None:
    two = instance([[4.0, 4.0]] * 2, counts=[1, 1])
    found = least_sum(two, np.array([[1.0, 3.0]] * 2), deadline_seconds=4.0)
    assert sorted(found.types.tolist()) == [0, 1]
    assert found.value == pytest.approx(4.0)
    assert found.type_prices.tolist() == pytest.approx([2.0, 0.0], abs=1e-3)


def test_a_task_longer_than_the_deadline_is_unplaced() -> None:
    found = least_sum(instance([[9.0], [2.0]], counts=[2]), np.ones((2, 1)), deadline_seconds=5.0)
    assert found.unplaced.tolist() == [0]
    assert found.value == found.bound == 1.0


def test_a_cost_that_is_missing_is_refused() -> None:
    with pytest.raises(UsageError, match="cost"):
        least_sum(instance([[1.0]], counts=[1]), np.array([[np.nan]]))

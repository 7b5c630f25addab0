"""The least sum of completion times: exact for equal weights, enclosed for others."""

from dataclasses import replace

import numpy as np
import pytest
from assign_instances import completion, instance, optimum, tasks_with_a_place, tiny_instances
from hypothesis import given, settings

from tonnage.allocate.assign import Instance, check, least_total_completion
from tonnage.errors import UsageError


@settings(deadline=None, max_examples=150)
@given(tiny_instances(resident=False))
def test_equal_weights_are_solved_exactly_and_the_bound_proves_it(tiny: Instance) -> None:
    found = least_total_completion(tiny)
    best = optimum(tiny, tasks_with_a_place(tiny), completion)
    assert found.value == pytest.approx(best)
    assert found.bound == pytest.approx(best)
    assert check.total_completion(tiny, found) == pytest.approx(best)


@settings(deadline=None, max_examples=100)
@given(tiny_instances(resident=False, weighted=True))
def test_bound_and_value_enclose_the_optimum_of_weighted_tasks(tiny: Instance) -> None:
    found = least_total_completion(tiny)
    best = optimum(tiny, tasks_with_a_place(tiny), completion)
    assert found.bound <= best * (1 + 1e-9)
    assert best <= found.value * (1 + 1e-9)
    assert check.total_completion(tiny, found) == pytest.approx(found.value)


def test_more_positions_are_added_until_the_last_one_has_a_free_place() -> None:
    """All tasks belong on the fast GPU, though the first guess spreads them."""
    found = least_total_completion(instance([[1.0, 50.0]] * 9, counts=[1, 5], resident=False))
    assert found.types.tolist() == [0] * 9
    assert found.value == 45.0


def test_prices_tell_what_one_more_gpu_brings() -> None:
    random = np.random.default_rng(0)
    some = instance(random.uniform(1, 30, (80, 2)).tolist(), counts=[8, 8], resident=False)
    found = least_total_completion(some)
    more = least_total_completion(replace(some, counts=np.array([9, 8])))
    assert 0 < found.value - more.value <= found.type_prices[0]


def test_a_former_answer_leads_to_the_same_optimum() -> None:
    random = np.random.default_rng(0)
    some = instance(random.uniform(1, 30, (60, 3)).tolist(), counts=[2, 3, 4], resident=False)
    shorter = replace(some, seconds=some.seconds * random.uniform(0.5, 1.0, some.seconds.shape))
    start = least_total_completion(some)
    assert least_total_completion(shorter, start).value == pytest.approx(least_total_completion(shorter).value)


def test_resident_tasks_are_refused_for_they_do_not_run_one_after_the_other() -> None:
    with pytest.raises(UsageError, match="side by side"):
        least_total_completion(instance([[1.0]], counts=[1], resident=True))

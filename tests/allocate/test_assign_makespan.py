"""The least makespan, beside the optimum of tiny instances and on a few that are awkward."""

import numpy as np
import pytest
from assign_instances import instance, longest, optimum, tasks_with_a_place, tiny_instances
from hypothesis import given, settings

from tonnage.allocate.assign import Instance, check, least_makespan
from tonnage.errors import UsageError

SLIGHTLY = 1 + 1e-6


@settings(deadline=None, max_examples=80)
@given(tiny_instances())
def test_bound_and_value_enclose_the_optimum(tiny: Instance) -> None:
    found = least_makespan(tiny, keep_going=a_few_rounds())
    placed = np.flatnonzero(found.types >= 0)
    best = optimum(tiny, placed, longest)
    assert found.bound <= best * SLIGHTLY
    assert best <= found.value * SLIGHTLY
    assert found.value == pytest.approx(check.makespan(tiny, found))


@settings(deadline=None, max_examples=40)
@given(tiny_instances(resident=False))
def test_every_task_that_runs_somewhere_is_placed_and_the_rest_is_listed(tiny: Instance) -> None:
    found = least_makespan(tiny, keep_going=a_few_rounds())
    assert sorted([*found.unplaced, *tasks_with_a_place(tiny)]) == list(range(tiny.size))


@settings(deadline=None, max_examples=40)
@given(tiny_instances(resident=False))
def test_tiny_instances_are_solved_to_the_optimum(tiny: Instance) -> None:
    found = least_makespan(tiny, keep_going=a_few_rounds())
    assert found.value == pytest.approx(optimum(tiny, np.flatnonzero(found.types >= 0), longest))


def test_one_gpu_takes_everything() -> None:
    found = least_makespan(instance([[1], [2], [3]], counts=[1]))
    assert found.value == found.bound == 6.0
    assert found.positions.tolist() == [0, 1, 2]


def test_equal_tasks_are_spread_evenly_and_that_is_proven() -> None:
    found = least_makespan(instance([[5.0]] * 7, counts=[3]))
    assert found.value == found.bound == 15.0


def test_without_tasks_there_is_nothing_to_do() -> None:
    found = least_makespan(instance([], counts=[2]))
    assert (found.value, found.bound, len(found.types), len(found.unplaced)) == (0.0, 0.0, 0, 0)


def test_without_gpus_all_tasks_are_unplaced() -> None:
    found = least_makespan(instance([[1.0], [2.0]], counts=[0]))
    assert found.unplaced.tolist() == [0, 1]


def test_a_type_without_gpus_is_not_used_however_fast() -> None:
    found = least_makespan(instance([[1.0, 9.0], [1.0, 9.0]], counts=[0, 2]))
    assert found.types.tolist() == [1, 1]
    assert found.value == 9.0


def test_memory_may_be_exactly_full() -> None:
    full = instance([[1.0]] * 6, counts=[2], memory=[50, 30, 20, 60, 30, 10])
    found = least_makespan(full)
    assert len(found.unplaced) == 0
    assert check.makespan(full, found) == 3.0


def test_a_task_that_fits_nowhere_is_listed_and_the_rest_is_planned() -> None:
    found = least_makespan(instance([[1.0], [1.0], [1.0]], counts=[2], memory=[10, 101, 10]))
    assert found.unplaced.tolist() == [1]
    assert found.value == 1.0


def test_more_memory_than_there_is_leaves_tasks_out_and_bounds_the_others() -> None:
    crowded = instance([[4.0]] * 5, counts=[2], memory=[60] * 5)
    found = least_makespan(crowded, keep_going=a_few_rounds())
    assert len(found.unplaced) == 3
    assert found.bound <= found.value == check.makespan(crowded, found) == 4.0


def test_long_tasks_are_not_bounded_by_a_type_on_which_they_take_too_long() -> None:
    found = least_makespan(instance([[10.0, 100.0], [10.0, 100.0]], counts=[1, 9]))
    assert found.value == 20.0
    assert found.bound == pytest.approx(20.0, rel=1e-3)


def test_the_last_prices_are_a_start_that_changes_no_bound() -> None:
    some = random_instance(60, 12)
    first = least_makespan(some, keep_going=a_few_rounds())
    again = least_makespan(some, first.prices, keep_going=a_few_rounds())
    assert again.bound == pytest.approx(first.bound, rel=1e-3)


def test_one_more_gpu_of_the_dearest_type_lowers_the_bound_most() -> None:
    some = random_instance(200, 20)
    found = least_makespan(some, keep_going=a_few_rounds())
    bounds = [least_makespan(with_one_more(some, number), keep_going=a_few_rounds()).bound for number in range(2)]
    assert np.argmin(bounds) == np.argmax(found.type_prices)
    assert found.bound - min(bounds) == pytest.approx(found.type_prices.max(), rel=0.2)


def test_a_search_makes_the_packing_better() -> None:
    some = random_instance(200, 40)
    assert least_makespan(some, enough_gap=0.003).gap < least_makespan(some, keep_going=lambda: False).gap


def test_enough_is_enough() -> None:
    some = random_instance(200, 40)
    asked = Counter()
    found = least_makespan(some, enough_gap=0.5, keep_going=asked)
    assert found.gap <= 0.5
    assert asked.times == 0


@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_seconds_that_cannot_be_are_refused(seconds: float) -> None:
    with pytest.raises(UsageError, match="seconds"):
        instance([[seconds]], counts=[1])


class Counter:
    """Keeps going, and counts how often it was asked."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> bool:
        self.times += 1
        return True


class a_few_rounds(Counter):  # noqa: N801  (reads as what it is)
    def __call__(self) -> bool:
        return super().__call__() and self.times < 100


def random_instance(tasks: int, gpus: int) -> Instance:
    random = np.random.default_rng(1)
    fast = random.uniform(1, 9, tasks)
    return instance(
        np.column_stack([fast, 2 * fast * random.uniform(0.8, 1.2, tasks)]).tolist(),
        counts=[gpus // 2, gpus - gpus // 2],
        memory=random.integers(1, 160 * gpus // tasks, tasks).tolist(),
    )


def with_one_more(given: Instance, number: int) -> Instance:
    counts = given.counts.tolist()
    counts[number] += 1
    return instance(given.seconds.tolist(), counts=counts, memory=given.memory_bytes[:, 0].tolist())

"""Tasks join others on the same GPUs where both together are worth more."""

import numpy as np

from tonnage.allocate.pairing import Group, join

ALONE = np.array([10.0, 4.0])
PAIRED = np.array([[6.0, 8.0], [3.0, 2.5]])  # the first class goes well with the second


def group(
    tasks: list[int],
    classes: list[int],
    rates: list[float],
    *,
    given_up: float = 0.0,
    partners: list[int] | None = None,
) -> Group:
    return Group(
        tasks=np.array(tasks),
        classes=np.array(classes),
        rates=np.array(rates),
        given_up=np.full(len(tasks), given_up),
        partners=np.array(partners or [-1] * len(tasks)),
    )


def test_a_guest_goes_to_the_host_that_suits_it() -> None:
    assert join(group([5], [0], [1.0]), group([1, 2], [0, 1], [1.0, 1.0]), ALONE, PAIRED) == [(5, 2)]


def test_of_two_hosts_alike_the_one_worth_less_is_slowed() -> None:
    assert join(group([5], [1], [1.0]), group([1, 2], [1, 1], [1.0, 0.5]), ALONE, PAIRED) == [(5, 2)]


def test_the_guest_that_brings_most_comes_first() -> None:
    assert join(group([5, 6], [0, 0], [1.0, 2.0]), group([1], [1], [1.0]), ALONE, PAIRED) == [(6, 1)]


def test_who_is_together_stays_together() -> None:
    guests = group([5, 6], [0, 0], [1.0, 2.0], partners=[1, -1])
    assert join(guests, group([1], [1], [1.0]), ALONE, PAIRED) == [(5, 1)]


def test_nobody_comes_who_gives_up_more_than_both_gain() -> None:
    assert join(group([5], [0], [1.0], given_up=7.5), group([1], [1], [1.0]), ALONE, PAIRED) == []


def test_nobody_comes_where_the_two_do_not_run_together() -> None:
    assert join(group([5], [0], [1.0]), group([1], [1], [1.0]), ALONE, np.zeros((2, 2))) == []


def test_no_task_joins_itself_or_two_others() -> None:
    both = group([1, 2, 3], [1, 1, 1], [1.0, 1.0, 1.0])
    pairs = join(both, both, ALONE, PAIRED)
    assert len(pairs) == 1
    assert len({task for pair in pairs for task in pair}) == 2

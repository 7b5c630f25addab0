"""Of a long queue, those are looked at that may get GPUs."""

import numpy as np
from speed_tables import queue, table

from tonnage.allocate.priced import most_valuable_whole
from tonnage.allocate.simulate.shortlist import Shortlist, most_valuable_tasks
from tonnage.allocate.speeds import Bools, Ints


def none_ended(count: int) -> Bools:
    return np.zeros(count, dtype=bool)


def first_hundred(jobs: Ints) -> Ints:
    return np.arange(min(100, len(jobs)))


def test_in_a_short_queue_all_are_looked_at() -> None:
    jobs = Shortlist()
    jobs.add(np.arange(1000))
    jobs.update(none_ended(1000), first_hundred)
    assert len(jobs.jobs) == 1000


def test_of_a_long_queue_those_are_looked_at_that_were_chosen_and_those_who_came_since() -> None:
    jobs = Shortlist()
    jobs.add(np.arange(2000))
    jobs.update(none_ended(2001), first_hundred)
    jobs.add(np.array([2000]))
    jobs.update(none_ended(2001), first_hundred)
    assert jobs.jobs.tolist() == [*range(100), 2000]


def test_all_are_looked_through_again_when_half_of_the_list_has_ended() -> None:
    jobs, ended = Shortlist(), none_ended(2000)
    jobs.add(np.arange(2000))
    jobs.update(ended, first_hundred)
    ended[:50] = True
    jobs.update(ended, first_hundred)
    assert jobs.jobs.tolist() == list(range(50, 150))


def test_nobody_is_forgotten_when_the_queue_becomes_short() -> None:
    jobs, ended = Shortlist(), none_ended(1050)
    jobs.add(np.arange(1050))
    jobs.update(ended, first_hundred)
    ended[:60] = True
    jobs.update(ended, first_hundred)
    assert jobs.jobs.tolist() == list(range(60, 1050))


def test_placements_from_the_shortlist_are_worth_as_much_as_from_all() -> None:
    random = np.random.default_rng(1)
    waiting = queue(table(), [8, 8, 16], random.choice(8, 3000).tolist(), random.lognormal(8.0, 1.0, 3000).tolist())
    value = 1.0 / waiting.left_steps
    chosen = most_valuable_tasks(waiting, value)
    some = most_valuable_whole(waiting.chosen(chosen), value[chosen]).value
    assert len(chosen) < 300
    assert some >= 0.99 * most_valuable_whole(waiting, value).value

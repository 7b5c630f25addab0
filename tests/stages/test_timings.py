"""The clock of a worker, with time that the test makes."""

import pytest

from tonnage.stages import timings
from tonnage.stages.timings import Clock, Timings


class Time:
    """Passes only when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def perf_counter(self) -> float:
        return self.now

    thread_time = perf_counter


@pytest.fixture
def passing(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    monkeypatch.setattr(timings, "time", made)
    return made


def run(clock: Clock, passing: Time, seconds: float, *, phase: str = "forward", place: int = 0) -> float:
    with clock.computing(0, phase, place):
        passing.now += seconds
    return clock.timings.computed[-1].seconds


def test_without_a_pace_nothing_waits(passing: Time) -> None:
    clock = Clock(Timings())
    assert [run(clock, passing, each) for each in (2.0, 1.0, 3.0)] == [2.0, 1.0, 3.0]


def test_a_pace_counts_from_the_least_that_the_same_work_has_needed(passing: Time) -> None:
    clock = Clock(Timings(), pace=4.0)
    assert [run(clock, passing, each) for each in (2.0, 1.0, 3.0)] == [8.0, 4.0, 4.0]
    assert [row.processor_seconds for row in clock.timings.computed] == [2.0, 1.0, 3.0]


def test_work_that_takes_longer_than_the_pace_allows_is_not_cut(passing: Time) -> None:
    clock = Clock(Timings(), pace=2.0)
    assert [run(clock, passing, each) for each in (1.0, 5.0)] == [2.0, 5.0]


def test_phases_and_segments_are_different_work(passing: Time) -> None:
    clock = Clock(Timings(), pace=3.0)
    assert run(clock, passing, 1.0) == 3.0
    assert run(clock, passing, 2.0, phase="backward") == 6.0
    assert run(clock, passing, 4.0, place=1) == 12.0


def test_a_rehearsal_leaves_no_row_and_is_remembered(passing: Time) -> None:
    clock = Clock(Timings(), pace=4.0)
    with clock.rehearsing("forward", 0):
        passing.now += 1.0
    assert clock.timings.computed == []
    assert run(clock, passing, 2.0) == 4.0

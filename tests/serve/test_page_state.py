"""What the page is told, and how seldom the folder is looked at for it."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from tonnage.serve.configuration import ModelConfiguration, TensorSpec
from tonnage.serve.errors import UnknownThing
from tonnage.serve.models import ModelState
from tonnage.serve.page import PageState, file, is_file
from tonnage.serve.statistics import BOUNDS, Histogram, Statistics


class FakeVersion:
    def __init__(self, name: str = "rows") -> None:
        spec = TensorSpec(name="x", datatype="FP32", dims=(4,))
        self.configuration = ModelConfiguration(name=name, max_batch_size=8, inputs=(spec,), outputs=(spec,))
        self.version, self.statistics, self.pids, self.waiting = "1", Statistics(), [11, 12], 3


class FakeModels:
    def __init__(self) -> None:
        self.versions: list[Any] = [FakeVersion()]
        self.looked = 0

    def all(self) -> list[Any]:
        return self.versions

    def index(self) -> list[ModelState]:
        self.looked += 1
        return [ModelState("rows", "1", "READY"), ModelState("broken", "", "UNAVAILABLE", "no model")]


class FakeClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def models() -> FakeModels:
    return FakeModels()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def state(models: FakeModels, clock: FakeClock) -> PageState:
    return PageState(SimpleNamespace(models=models, is_ready=True), clock)  # type: ignore[arg-type]


def test_figures_are_those_of_the_version(state: PageState, models: FakeModels) -> None:
    statistics = models.versions[0].statistics
    statistics.success.add(1e6, 5)
    statistics.fail.add(1e6, 2)
    statistics.latencies.add(0.001)
    told = state.to_json()["models"][0]
    assert (told["requests"], told["failed"], told["instances"], told["waiting"]) == (5, 2, 2, 3)
    assert sum(told["latencies"]) == 1
    assert told["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]


def test_a_model_that_is_not_served_has_a_reason_and_no_figures(state: PageState) -> None:
    told = state.to_json()["models"][1]
    assert told == {"name": "broken", "version": "", "state": "UNAVAILABLE", "reason": "no model"}


def test_the_folder_is_looked_at_seldom_however_many_ask(
    state: PageState, models: FakeModels, clock: FakeClock
) -> None:
    for _ in range(20):
        state.to_json()
        clock.now += 0.25
    assert models.looked == 3


def test_a_slow_folder_is_looked_at_even_less(state: PageState, models: FakeModels, clock: FakeClock) -> None:
    quick = models.index

    def slow() -> list[ModelState]:
        clock.now += 1.0
        return quick()

    models.index = slow  # type: ignore[method-assign]
    for _ in range(50):
        state.to_json()
        clock.now += 1.0
    assert models.looked == 1


def test_a_version_that_is_loaded_again_is_told_apart(state: PageState, models: FakeModels) -> None:
    first = state.to_json()["models"][0]["load"]
    assert state.to_json()["models"][0]["load"] == first
    models.versions = [FakeVersion()]
    assert state.to_json()["models"][0]["load"] != first


def test_bounds_rise_and_are_at_most_a_third_apart() -> None:
    assert all(1 < high / low < 1.34 for low, high in pairwise(BOUNDS))
    histogram = Histogram()
    histogram.add(BOUNDS[7])
    histogram.add(1e9)
    assert (histogram.counts[7], histogram.counts[-1]) == (1, 1)


def test_only_files_of_the_page_are_files() -> None:
    assert is_file([""])
    assert is_file(["page", "page.js"])
    assert not is_file(["page", "state"])
    assert not is_file(["page", "__init__.py"])
    with pytest.raises(UnknownThing):
        file("__init__.py")

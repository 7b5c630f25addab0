"""The pure parts: segments of any graph, what is ready, what a report makes of rows."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from networks import Perceptron
from splitting import in_a_row

from tonnage.errors import UsageError
from tonnage.program.exported import export_module
from tonnage.stages.cutting import cut
from tonnage.stages.orders import team_of
from tonnage.stages.readiness import Readiness
from tonnage.stages.report import Spread, links_of, period_of, seconds_by
from tonnage.stages.segments import Place, levels_of, place_in_segments
from tonnage.stages.timings import Computed, Timings, Transferred

Graph = tuple[list[str], dict[str, set[str]], dict[str, str]]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Operations in a topological order, those before each, and devices."""
    count = draw(st.integers(1, 14))
    names = [f"op{number}" for number in range(count)]
    before = {name: set(draw(st.sets(st.sampled_from(names[:place])))) if place else set()
              for place, name in enumerate(names)}  # fmt: skip
    device = {name: draw(st.sampled_from(["a", "b", "c"])) for name in names}
    return names, before, device


def segments_before(places: dict[str, Place], before: dict[str, set[str]]) -> dict[Place, set[Place]]:
    found: dict[Place, set[Place]] = {place: set() for place in places.values()}
    for name, place in places.items():
        found[place] |= {places[other] for other in before[name]} - {place}
    return found


@given(graphs())
def test_segments_never_wait_for_each_other_in_a_circle(graph: Graph) -> None:
    names, before, device = graph
    places = place_in_segments(names, device, before)
    earlier = segments_before(places, before)
    levels = levels_of(earlier, earlier)
    assert all(places[name][0] == device[name] for name in names)
    assert all(levels[other] < levels[place] for place, others in earlier.items() for other in others)


@given(graphs())
def test_a_contiguous_distribution_needs_no_second_segment(graph: Graph) -> None:
    names, before, _ = graph
    device = {name: f"d{place * 3 // len(names)}" for place, name in enumerate(names)}
    places = place_in_segments(names, device, before)
    assert {number for _, number in places.values()} == {0}


def test_of_what_is_ready_the_smallest_comes_first() -> None:
    ready = Readiness()
    ready.add((2, "late"), [])
    ready.add((1, "early"), ["fact"])
    assert ready.waits_for == "fact"
    ready.happen("fact")
    assert [ready.pop(), ready.pop(), ready.pop()] == [(1, "early"), (2, "late"), None]


def test_facts_of_a_group_are_known_until_it_is_forgotten() -> None:
    ready = Readiness()
    ready.happen("fact", group=7)
    ready.add((1,), ["fact"])
    assert ready.pop() == (1,)
    ready.forget(7)
    ready.add((2,), ["fact"])
    assert ready.pop() is None


def test_the_period_is_that_of_the_stream_even_if_samples_come_in_pairs() -> None:
    moments = [number // 2 * 2.0 for number in range(41)]
    assert period_of(moments).median == pytest.approx(1.0, rel=0.06)
    assert {late - early for early, late in pairwise(moments)} == {0.0, 2.0}


def test_seconds_are_added_up_over_the_segments_of_a_sample() -> None:
    rows = [Computed(number, "forward", 0.1 * (number + 1), 0.01) for number in (0, 0, 1, 9)]
    assert seconds_by(Timings(computed=rows), "forward", range(2)) == Spread(median=0.2, p95=0.2, count=2)


def test_a_link_tells_samples_and_updates_apart() -> None:
    rows = [
        Transferred(0, "value", "a", 100, 0.1),
        Transferred(0, "value", "a", 50, 0.1),
        Transferred(1, "gradient", "a", 250, 0.4),
        Transferred(0, "weight", "a", 1000, 1.0),
    ]
    (link,) = links_of({"b": Timings(transferred=rows)}, range(2), range(1))
    assert (link.source, link.target) == ("a", "b")
    assert (link.bytes_sample, link.bytes_update) == (200, 1000)
    assert link.seconds.median == pytest.approx(0.3)


def test_a_device_holds_one_stage() -> None:
    module = export_module(Perceptron(), torch.randn(4, 32)).module
    parts = cut(module, in_a_row(module, 2))
    with pytest.raises(UsageError, match="d0 cannot run two stages"):
        team_of(parts, {"d1": ["d0"]}, [])
    with pytest.raises(UsageError, match="nobody has no stage"):
        team_of(parts, {"nobody": ["d2"]}, [])

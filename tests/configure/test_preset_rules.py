"""The preset rules, one by one: what an indicator in a range leads to."""

from typing import Any

import pytest
from placing import example_cluster, indicators, rules, waiting, work

from tonnage.configure.inventory import Candidate, candidates
from tonnage.configure.predict import Predictor
from tonnage.configure.rule_fields import FIELDS, fields_of
from tonnage.configure.rules import Decision, Range
from tonnage.configure.work import Work


def candidate(name: str) -> Candidate:
    return next(c for c in candidates(example_cluster(), 8) if c.name == name)


def decide(asked: Work, name: str = "hopper: H200, pcie") -> Decision:
    return rules().decide(fields_of(Predictor(asked, candidate(name))))


def decider(decision: Decision, about: str) -> str:
    return decision.by[about].name


PAIR = "hopper: 2 x H200, nvlink"


@pytest.mark.parametrize(
    ("changes", "rule", "communication"),
    [
        ({"forward_seconds": 0.03}, "short-forward", "nvlink"),
        ({"forward_seconds": 0.249}, "short-forward", "nvlink"),
        ({"forward_seconds": 0.25}, "long-forward", "pcie"),
        ({"forward_seconds": 3.0}, "long-forward", "pcie"),
    ],
)
def test_the_forward_time_decides_the_communication(changes: dict[str, Any], rule: str, communication: str) -> None:
    decision = decide(work(indicators=indicators(**changes), gradient_bytes=1000), PAIR)
    assert decision.then.communication == communication
    assert decider(decision, "communication") == rule


def test_large_gradients_need_nvlink_however_long_the_passes_are() -> None:
    decision = decide(work(indicators=indicators(forward_seconds=3.0), gradient_bytes=10**9), PAIR)
    assert decider(decision, "communication") == "large-gradients"


def test_inference_asks_for_no_communication() -> None:
    asked = work(indicators=indicators(backward_seconds=0.0, optimizer_seconds=0.0))
    assert decide(asked, PAIR).then.communication is None


def test_copies_ask_for_pinned_memory() -> None:
    assert decider(decide(work()), "pinned_memory") == "large-copies"
    assert decider(decide(work(indicators=indicators(h2d_bytes=0))), "pinned_memory") == "copies-count"
    small = indicators(h2d_bytes=1000, h2d_seconds=1e-5)
    assert decide(work(indicators=small)).then.pinned_memory is None


def test_a_fifth_of_copying_asks_for_sixteen_lanes() -> None:
    assert decide(work(indicators=indicators(h2d_seconds=0.021))).then.pcie_lanes == 16
    assert decide(work()).then.pcie_lanes is None


def test_waiting_for_data_asks_for_workers_and_cores() -> None:
    decision = decide(work(indicators=waiting(workers=2)))
    assert decider(decision, "loader_workers") == decider(decision, "cpu_cores") == "data-is-late"


def test_workers_that_keep_up_are_kept() -> None:
    decision = decide(work(indicators=indicators(loader_workers=4, cpu_cores_used=3.0)))
    assert decider(decision, "loader_workers") == "loader-keeps-up"


def test_memory_follows_the_peak_of_the_host() -> None:
    asked = work()
    fields = fields_of(Predictor(asked, candidate("hopper: H200, pcie")))
    amount = decide(asked).then.memory_bytes
    assert amount is not None
    assert amount.of(fields) == round(1.25 * (6 << 30) + 1e9)


def test_an_unknown_peak_of_the_host_is_assumed_from_the_gpu() -> None:
    assert decider(decide(work(indicators=indicators(peak_host_bytes=None))), "memory_bytes") == "unknown-host-peak"


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({}, "computing-first"),
        ({"h2d_seconds": 0.06}, "copying-first"),
        ({"data_wait_seconds": 0.06, "loader_workers": 1}, "loading-first"),
    ],
)
def test_what_takes_most_of_the_step_decides_the_order(changes: dict[str, Any], rule: str) -> None:
    assert decider(decide(work(indicators=indicators(**changes))), "order") == rule


def test_every_field_of_the_language_has_a_value() -> None:
    assert set(fields_of(Predictor(work(), candidate(PAIR)))) == set(FIELDS)


def test_a_field_that_is_not_known_is_in_no_range() -> None:
    assert not Range(field="power_watts", below=1e9).holds({"power_watts": None})

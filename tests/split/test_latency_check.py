"""The independent checker: what an assignment takes, and which rules it breaks."""

from dataclasses import replace
from math import inf

import pytest
from latency_problems import chain

from tonnage.split.latency.check import broken_rules, latency_of
from tonnage.split.latency.problem import LatencyProblem

DIAMOND = replace(
    chain(4, accelerators=2, memory_bytes=4.0, transfer=0.5),
    edges=((0, 1), (0, 2), (1, 3), (2, 3)),
)


def test_a_tensor_between_accelerators_is_paid_out_of_one_and_into_the_other() -> None:
    assert latency_of(chain(4, accelerators=2, memory_bytes=2.0), (0, 0, 1, 1)) == 4 + 2 * 1


def test_a_tensor_between_an_accelerator_and_the_processors_is_paid_once() -> None:
    assert latency_of(chain(3, accelerators=1, memory_bytes=2.0), (0, 0, -1)) == 2 + 1 + 10


def test_a_tensor_with_two_consumers_on_one_accelerator_moves_in_once() -> None:
    assert latency_of(DIAMOND, (-1, 0, 0, 0)) == 10 + 0.5 + 3


def test_a_tensor_with_consumers_on_two_other_devices_moves_out_once() -> None:
    assert latency_of(DIAMOND, (0, 1, -1, -1)) == (1 + 0.5) + 10 + 10


def test_nodes_on_the_processors_run_side_by_side() -> None:
    assert latency_of(DIAMOND, (-1, -1, -1, -1)) == 30


def test_a_subgraph_starts_when_the_last_of_its_inputs_is_finished() -> None:
    slow_side = replace(DIAMOND, cpu_seconds=(10.0, 10.0, 50.0, 10.0))
    assert latency_of(slow_side, (0, 0, -1, 1)) == (2 + 2 * 0.5) + 50 + (2 * 0.5 + 1)


@pytest.mark.parametrize(
    ("problem", "assignment", "sentence"),
    [
        (chain(3, accelerators=1, memory_bytes=2.0), (0, 0, 0), "accelerator 0 holds 3 bytes, more than 2"),
        (chain(3, accelerators=1, memory_bytes=2.0), (0, -1, 0), "the subgraph of accelerator 0 is not contiguous"),
        (chain(3, accelerators=1, memory_bytes=2.0), (0, 1, -1), "there is no accelerator 1"),
        (chain(3, accelerators=1, memory_bytes=2.0), (0, 0), "2 devices are given for 3 nodes"),
        (replace(DIAMOND, classes=(0, 1, 1, 3)), (-1, 0, -1, -1), "class 1 is on 2 devices"),
        (
            replace(DIAMOND, accelerator_seconds=(1.0, inf, 1.0, 1.0)),
            (0, 0, 0, 0),
            "node 1 cannot run on an accelerator",
        ),
    ],
)
def test_each_broken_rule_is_said(problem: LatencyProblem, assignment: tuple[int, ...], sentence: str) -> None:
    assert sentence in broken_rules(problem, assignment)


def test_contiguous_subgraphs_may_still_wait_for_each_other() -> None:
    crossing = replace(chain(4, accelerators=2, memory_bytes=4.0), edges=((0, 1), (2, 3)))
    assert broken_rules(crossing, (0, 1, 1, 0)) == ["subgraphs wait for each other in a circle"]


def test_a_good_assignment_breaks_no_rule() -> None:
    assert broken_rules(DIAMOND, (0, 0, 1, 1)) == []

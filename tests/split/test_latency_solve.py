"""The latency solver against all assignments of small networks, and on what is special about some."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from latency_problems import chain, least_latency, problems

from tonnage.errors import UsageError
from tonnage.split.latency.check import broken_rules, latency_of
from tonnage.split.latency.problem import LatencyProblem
from tonnage.split.latency.solve import solve_latency


@given(problem=problems())
@settings(max_examples=150, deadline=None)
def test_the_answer_keeps_all_rules_and_has_the_value_that_it_states(problem: LatencyProblem) -> None:
    answer = solve_latency(problem)
    assert broken_rules(problem, answer.assignment) == []
    assert answer.value == pytest.approx(latency_of(problem, answer.assignment), rel=1e-9)


@given(problem=problems(most_nodes=5))
@settings(max_examples=150, deadline=None)
def test_no_assignment_beats_the_bound_and_none_beats_a_proven_answer(problem: LatencyProblem) -> None:
    answer, least = solve_latency(problem), least_latency(problem)
    assert answer.bound <= least * (1 + 1e-9)
    assert answer.proven
    assert answer.value == pytest.approx(least, rel=2e-6)


@given(problem=problems(most_nodes=5))
@settings(max_examples=50, deadline=None)
def test_a_search_that_is_stopped_at_once_still_answers_with_a_valid_bound(problem: LatencyProblem) -> None:
    answer = solve_latency(problem, keep_going=lambda: False)
    assert broken_rules(problem, answer.assignment) == []
    assert answer.bound <= least_latency(problem) * (1 + 1e-9)


def test_a_chain_is_cut_as_often_as_memory_asks() -> None:
    answer = solve_latency(chain(6, accelerators=3, memory_bytes=2.0))
    assert (answer.value, answer.proven) == (6 + 2 * 2, True)


def test_what_accelerators_cannot_hold_stays_on_the_processors() -> None:
    answer = solve_latency(chain(5, accelerators=2, memory_bytes=2.0))
    assert (answer.value, answer.proven) == (4 + 10 + 2, True)


@pytest.mark.parametrize(
    "problem", [chain(4, accelerators=0, memory_bytes=9.0), chain(4, accelerators=3, memory_bytes=0.5)]
)
def test_without_room_on_accelerators_all_nodes_are_on_the_processors(problem: LatencyProblem) -> None:
    answer = solve_latency(problem)
    assert (answer.value, answer.bound, answer.proven) == (40.0, 40.0, True)
    assert set(answer.assignment) == {-1}


def test_a_network_without_edges_takes_as_long_as_its_slowest_place() -> None:
    answer = solve_latency(replace(chain(4, accelerators=2, memory_bytes=4.0), edges=()))
    assert (answer.value, answer.proven) == (2.0, True)


def test_a_network_of_one_node_and_one_of_none() -> None:
    assert solve_latency(chain(1, accelerators=1, memory_bytes=1.0)).value == 1.0
    assert solve_latency(chain(0, accelerators=1, memory_bytes=1.0)).proven


def test_an_unsupported_node_and_its_class_are_on_the_processors() -> None:
    problem = replace(
        chain(4, accelerators=2, memory_bytes=4.0),
        accelerator_seconds=(1.0, inf, 1.0, 1.0),
        classes=(0, 1, 2, 1),
    )
    answer = solve_latency(problem)
    assert answer.assignment[1] == answer.assignment[3] == -1
    assert (answer.value, answer.proven) == (1 + 1 + 10 + 1 + 1 + 1 + 10, True)


def test_a_class_with_an_unsupported_node_between_its_members_is_on_the_processors() -> None:
    problem = replace(
        chain(3, accelerators=1, memory_bytes=4.0), accelerator_seconds=(1.0, inf, 1.0), classes=(0, 1, 0)
    )
    assert set(solve_latency(problem).assignment) == {-1}


def test_the_same_problem_has_the_same_answer() -> None:
    problem = chain(9, accelerators=3, memory_bytes=2.0)
    assert solve_latency(problem) == solve_latency(problem)


def test_a_network_with_a_cycle_is_refused() -> None:
    with pytest.raises(UsageError, match="cycle"):
        solve_latency(replace(chain(3, accelerators=1, memory_bytes=1.0), edges=((0, 1), (1, 2), (2, 0))))


@pytest.mark.parametrize(
    "change",
    [
        {"accelerators": -1},
        {"cpu_seconds": (1.0, -1.0)},
        {"edges": ((0, 2),)},
        {"classes": (0,)},
        {"memory_bytes": -1.0},
    ],
)
def test_impossible_figures_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        replace(chain(2, accelerators=1, memory_bytes=1.0), **change)

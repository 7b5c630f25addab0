from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import InvalidFile
from tonnage.split.checked import checked_network
from tonnage.split.network import Operation


def operation(number: str | int, **fields: Any) -> Operation:
    return Operation(**{"id": number, "seconds": {"any": 1.0}} | fields)


def refusal(*operations: Operation, edges: list[tuple[str | int, str | int]] | None = None) -> str:
    with pytest.raises(InvalidFile) as refused:
        checked_network("net", operations, edges or [], source="net.json")
    assert refused.value.hint
    return refused.value.message


def test_operations_in_a_topological_order_keep_it() -> None:
    network = checked_network("net", [operation(i) for i in range(4)], [(0, 3), (1, 2), (0, 3)])

    assert [op.id for op in network.operations] == [0, 1, 2, 3]
    assert network.edges == ((0, 3), (1, 2))


@given(
    st.permutations(range(6)), st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)).filter(lambda e: e[0] < e[1]))
)
def test_every_edge_leads_from_an_earlier_operation_to_a_later_one(
    order: list[int], edges: set[tuple[int, int]]
) -> None:
    network = checked_network("net", [operation(i) for i in order], edges)

    assert all(first < second for first, second in network.edges)
    ids = [op.id for op in network.operations]
    assert {(ids[first], ids[second]) for first, second in network.edges} == edges


def test_a_cycle_is_told_by_its_operations_and_not_by_what_hangs_on_it() -> None:
    edges: list[tuple[str | int, str | int]] = [("in", "a"), ("a", "b"), ("b", "c"), ("c", "a"), ("c", "out")]

    told = refusal(*map(operation, ["in", "a", "b", "c", "out"]), edges=edges)

    assert told == "net.json has a cycle: a -> b -> c -> a"


def test_an_operation_that_waits_for_itself_is_a_cycle() -> None:
    assert refusal(operation("a"), edges=[("a", "a")]) == "net.json has a cycle: a -> a"


def test_a_long_cycle_is_shortened() -> None:
    told = refusal(*map(operation, range(100)), edges=[(i, (i + 1) % 100) for i in range(100)])

    assert told == "net.json has a cycle: 0 -> 1 -> 2 -> 3 -> (93 more) -> 97 -> 98 -> 99 -> 0"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"seconds": {"cpu": -1.0}}, "seconds on cpu is -1"),
        ({"seconds": {"H200": nan}}, "seconds on H200 is nan"),
        ({"backward_seconds": {"any": inf}}, "backward seconds on any is inf"),
        ({"output_bytes": -5}, "output bytes is -5"),
        ({"weight_bytes": -5}, "weight bytes is -5"),
        ({"transfer_seconds": -0.5}, "transfer seconds is -0.5"),
    ],
)
def test_an_impossible_cost_is_refused_with_the_operation(fields: dict[str, Any], told: str) -> None:
    assert refusal(operation("x", name="conv", **fields)) == f"operation x (conv) of net.json: {told}"


def test_an_operation_that_runs_nowhere_is_refused() -> None:
    assert refusal(operation("x", seconds={})) == "operation x of net.json runs on no kind of device"


def test_two_operations_of_one_id_are_refused() -> None:
    assert refusal(operation("x"), operation("x")) == "net.json has two operations with the id x"


def test_an_edge_to_nowhere_is_refused() -> None:
    assert refusal(operation("x"), edges=[("x", "y")]) == "net.json has an edge from x to y, but no operation y"


def test_a_network_of_nothing_is_refused() -> None:
    assert refusal() == "net.json has no operations"


def test_a_weight_whose_size_nobody_tells_is_refused() -> None:
    assert (
        refusal(operation("x", weights=("w",))) == "operation x of net.json reads the weight w, whose size nobody tells"
    )

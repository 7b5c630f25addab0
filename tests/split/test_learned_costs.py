"""Costs that a run has shown are laid on the operations that ran there."""

from dataclasses import replace

import pytest
from pipelines import chain, star

from tonnage.errors import UsageError
from tonnage.split.learning import learned
from tonnage.split.metrics import Evaluation, Metrics
from tonnage.split.network import Network

KINDS = {"n0": "cpu", "n1": "cpu", "n2": "cpu"}
ASSIGNMENT: dict[str | int, str] = {"op0": "n0", "op1": "n0", "op2": "n1"}


def metrics_of(network: Network) -> Metrics:
    return Evaluation(network, star([1.0, 1.0, 1.0]), [0, 0, 1]).metrics()


def seconds(network: Network, kind: str = "any") -> list[float]:
    return [operation.seconds[kind] for operation in network.operations]


def test_operations_add_up_to_what_their_device_took() -> None:
    network = chain([1.0, 3.0, 2.0])
    found = learned(network, ASSIGNMENT, KINDS, metrics_of(network), {"n0": 2.0, "n1": 5.0})
    assert seconds(found) == [0.5, 1.5, 5.0]
    assert metrics_of(found).busy_seconds == {"n0": 2.0, "n1": 5.0}
    assert found.edges == network.edges


def test_backward_is_scaled_alike() -> None:
    network = chain([1.0, 3.0, 2.0], backward=2.0)
    found = learned(network, ASSIGNMENT, KINDS, metrics_of(network), {"n0": 6.0, "n1": 6.0})
    assert seconds(found) == [0.5, 1.5, 2.0]
    assert [operation.backward_seconds["any"] for operation in found.operations] == [1.0, 3.0, 4.0]


def test_costs_on_other_kinds_stay() -> None:
    network = chain([1.0, 3.0, 2.0])
    both = tuple(replace(each, seconds={"cpu": each.seconds["any"], "H200": 0.1}) for each in network.operations)
    network = replace(network, operations=both)
    found = learned(network, ASSIGNMENT, KINDS, metrics_of(network), {"n0": 8.0, "n1": 1.0})
    assert seconds(found, "cpu") == [2.0, 6.0, 1.0]
    assert seconds(found, "H200") == [0.1, 0.1, 0.1]


def test_devices_that_were_not_seen_or_did_nothing_change_nothing() -> None:
    """n1 was not measured, n2 has no operations."""
    network = chain([1.0, 3.0, 2.0])
    found = learned(network, ASSIGNMENT, KINDS, metrics_of(network), {"n0": 8.0, "n2": 1.0, "elsewhere": 1.0})
    assert seconds(found) == [2.0, 6.0, 2.0]


def test_a_stage_that_costs_nothing_stays_so() -> None:
    network = chain([1.0, 3.0, 0.0])
    found = learned(network, ASSIGNMENT, KINDS, metrics_of(network), {"n0": 4.0, "n1": 1.0})
    assert seconds(found) == [1.0, 3.0, 0.0]


def test_a_device_of_which_nothing_is_known_is_named() -> None:
    network = chain([1.0, 3.0, 2.0])
    with pytest.raises(UsageError, match="operation op2 ran on n1, of which nothing is known"):
        learned(network, ASSIGNMENT, {"n0": "cpu"}, metrics_of(network), {})

"""The public latency files, where they are, and what their format says, always."""

from math import inf
from pathlib import Path
from typing import Any

import pytest

from tonnage.split.latency.check import broken_rules, latency_of
from tonnage.split.latency.public import latency_problem
from tonnage.split.latency.solve import solve_latency
from tonnage.split.public_format import public_network, read_public

FOLDERS = [parent / "shared" / "data" / "networks" / "latency" for parent in Path(__file__).resolve().parents]
FOLDER = next((folder for folder in FOLDERS if folder.is_dir()), None)
REFERENCE = {"layer_bert24": 100.2185, "layer_gnmt": 225.648, "op_bert_l-3": 414.4}


def node(number: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "supportedOnFpga": 1, "cpuLatency": 10.0, "fpgaLatency": 1.0, "size": 1.0} | more


TWIN = {
    "maxFPGAs": 2,
    "maxCPUs": 8,
    "maxSizePerFPGA": 3.0,
    "nodes": [
        node(7, colorClass=None),
        node(3, colorClass=5),
        node(4, colorClass=5),
        node(9),
        node(1, supportedOnFpga=False, cpuLatency=2.0),
    ],
    "edges": [
        {"sourceId": 7, "destId": 3, "cost": 0.5},
        {"sourceId": 7, "destId": 4, "cost": 0.5},
        {"sourceId": 3, "destId": 9, "cost": 0.25},
        {"sourceId": 4, "destId": 9, "cost": 0.25},
        {"sourceId": 9, "destId": 1, "cost": 0.125},
    ],
}


def test_a_network_becomes_a_problem_with_nodes_in_its_order() -> None:
    public = public_network(TWIN, "twin")
    problem = latency_problem(public)
    assert [operation.id for operation in public.network.operations] == [7, 3, 4, 9, 1]
    assert problem.edges == ((0, 1), (0, 2), (1, 3), (2, 3), (3, 4))
    assert problem.transfer_seconds == (0.5, 0.25, 0.25, 0.125, 0.0)
    assert problem.accelerator_seconds[4] == inf
    assert problem.classes == (0, 1, 1, 2, 3)


def test_the_twin_of_the_public_files_is_solved() -> None:
    answer = solve_latency(latency_problem(public_network(TWIN, "twin")))
    assert (answer.value, answer.proven) == ((3 + 0.5) + (0.5 + 1 + 0.125) + 2, True)


@pytest.mark.skipif(FOLDER is None, reason="shared/data/networks is not here")
@pytest.mark.parametrize("name", REFERENCE)
def test_the_public_files_are_solved_as_well_as_known_and_proven(name: str) -> None:
    assert FOLDER is not None
    problem = latency_problem(read_public(FOLDER / f"{name}_inference.json.gz"))
    answer = solve_latency(problem)
    assert broken_rules(problem, answer.assignment) == []
    assert answer.value == pytest.approx(latency_of(problem, answer.assignment), rel=1e-9)
    assert answer.value <= REFERENCE[name] * (1 + 1e-6)
    assert answer.proven

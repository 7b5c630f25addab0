"""The public format: its rules, its reference values, and what is refused."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tonnage.errors import DoesNotFit, InvalidFile, NotFound
from tonnage.split.check import check_public
from tonnage.split.public_format import PublicNetwork, public_network, read_public
from tonnage.split.solving import split_public

DATA = Path(__file__).parents[3] / "shared" / "data" / "networks" / "throughput"
REFERENCE = {
    "layer_bert24_inference": 17.7899,
    "layer_bert24_training": 41.7458,
    "layer_gnmt_inference": 32.9107,
    "layer_resnet50_inference": 33.7747,
    "layer_resnet50_training": 78.6318,
    "layer_inceptionv3_inference": 51.5519,
    "op_bert_l-3_inference": 27.9186,
    "op_bert_l-6_inference": 29.5795,
    "op_resnet50_inference": 124.3488,
}
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the measured networks are not beside this repository")


def node(identity: int, seconds: float, **more: Any) -> dict[str, Any]:
    return {"id": identity, "fpgaLatency": seconds, "cpuLatency": 10 * seconds, "size": 1.0} | more


def edge(source: int, target: int, cost: float) -> dict[str, Any]:
    return {"sourceId": source, "destId": target, "cost": cost}


def record(nodes: list[dict[str, Any]], edges: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"maxFPGAs": 2, "maxCPUs": 0, "maxSizePerFPGA": 100.0, "nodes": nodes, "edges": edges} | more


def no_clock() -> float:
    return 0.0


def split(public: PublicNetwork, *, contiguous: bool = True) -> Any:
    return split_public(public, contiguous=contiguous, clock=no_clock, seconds=20.0)


CHAIN = record([node(each, 2.0) for each in range(4)], [edge(0, 1, 3.0), edge(1, 2, 1.0), edge(2, 3, 3.0)])


def test_a_chain_is_cut_where_it_is_cheapest() -> None:
    found = split(public_network(CHAIN, "chain"))
    assert found.value == 5.0  # two operations and the cut tensor, on both devices
    assert found.proven_optimal
    assert found.assignment[0] == found.assignment[1] != found.assignment[2] == found.assignment[3]


def test_a_tensor_with_several_readers_is_moved_once() -> None:
    fan = record([node(0, 4.0), node(1, 1.0), node(2, 1.0)], [edge(0, 1, 0.5), edge(0, 2, 0.5)])
    assert split(public_network(fan, "fan")).value == 4.5


def test_a_cpu_pays_nothing_for_transfers() -> None:
    both = record([node(0, 1.0), node(1, 1.0, cpuLatency=1.5)], [edge(0, 1, 9.0)], maxFPGAs=0, maxCPUs=2)
    assert split(public_network(both, "cpus")).value == 10.0


def test_operations_of_one_class_stay_together() -> None:
    classes = record(
        [node(0, 1.0, colorClass=7), node(1, 1.0), node(2, 1.0, colorClass=7)], [edge(0, 1, 0.0), edge(1, 2, 0.0)]
    )
    found = split(public_network(classes, "classes"))
    assert len(set(found.assignment.values())) == 1  # the one between them cannot be elsewhere and in one piece


def test_backward_operations_follow_their_class() -> None:
    training = record(
        [
            node(0, 1.0, colorClass=0), node(1, 1.0, colorClass=1),
            node(2, 2.0, colorClass=1, isBackwardNode=True), node(3, 2.0, colorClass=0, isBackwardNode=True),
        ],
        [edge(0, 1, 0.25), edge(1, 2, 0.0), edge(2, 3, 0.25)],
    )  # fmt: skip
    found = split(public_network(training, "training"))
    assert found.value == 3.5
    assert found.assignment[0] == found.assignment[3] != found.assignment[1]


def test_scattered_subnetworks_can_be_better() -> None:
    pytest.importorskip("ortools")
    zigzag = record([node(each, seconds) for each, seconds in enumerate([3.0, 5.0, 2.0])],
                    [edge(0, 1, 0.0), edge(1, 2, 0.0)])  # fmt: skip
    public = public_network(zigzag, "zigzag")
    assert split(public).value == 7.0
    assert split(public, contiguous=False).value == 5.0


def test_unsupported_operations_go_to_the_cpu() -> None:
    half = record([node(0, 1.0, supportedOnFpga=False), node(1, 1.0)], [edge(0, 1, 0.0)], maxCPUs=1)
    found = split(public_network(half, "half"))
    assert found.assignment[0] == "cpu0"
    assert found.assignment[1] == "accelerator0"


def test_too_little_memory_says_how_much_is_missing_and_what_would_do() -> None:
    tight = record([node(each, 1.0, size=60.0) for each in range(4)], [edge(each, each + 1, 0.0) for each in range(3)])
    with pytest.raises(DoesNotFit, match="hold 120% of its memory") as error:
        split(public_network(tight, "tight"))
    assert "2 more such as accelerator would be enough" in error.value.hint


def test_a_file_without_devices_is_told_so() -> None:
    with pytest.raises(DoesNotFit, match="no devices"):
        split(public_network(CHAIN | {"maxFPGAs": 0}, "chain"))


def test_an_operation_that_runs_nowhere_is_named() -> None:
    nowhere = record([node(0, 1.0, supportedOnFpga=False, name="lookup")], [])
    with pytest.raises(DoesNotFit, match="lookup"):
        split(public_network(nowhere, "nowhere"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes": 3}, "no list of nodes"),
        ({"maxFPGAs": -1}, "maxFPGAs is -1"),
        ({"maxFPGAs": 1.5}, "not a whole number"),
        ({"maxSizePerFPGA": None}, "maxSizePerFPGA is missing"),
        ({"nodes": [node(0, 1.0, fpgaLatency=-1.0)]}, "fpgaLatency is -1"),
        ({"nodes": [{"fpgaLatency": 1.0}]}, "has no id"),
        ({"nodes": [node(0, 1.0), node(0, 1.0)]}, "two operations with the id 0"),
        ({"edges": [edge(0, 9, 1.0)]}, "no operation 9"),
        ({"edges": [edge(0, 1, 1.0), edge(1, 0, 1.0)]}, "cycle"),
        ({"edges": [{"sourceId": 0, "destId": 1}]}, "cost is missing"),
        ({"edges": [{"destId": 1, "cost": 1.0}]}, "has no sourceId"),
    ],
)
def test_bad_records_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidFile, match=message):
        public_network(CHAIN | change, "bad.json")


def test_files_that_are_no_networks_are_refused(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.json.gz"
    damaged.write_bytes(gzip.compress(b"{}")[:-6])
    with pytest.raises(InvalidFile, match="damaged"):
        read_public(damaged)
    with pytest.raises(NotFound):
        read_public(tmp_path / "absent.json")
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(InvalidFile, match="not an object"):
        read_public(tmp_path / "list.json")


def test_a_file_may_be_packed_or_not(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(CHAIN))
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(json.dumps(CHAIN).encode()))
    assert read_public(tmp_path / "a.json").network.edges == read_public(tmp_path / "b.json.gz").network.edges


def test_the_checker_names_what_is_broken() -> None:
    public = public_network(CHAIN | {"maxSizePerFPGA": 2.5}, "chain")
    assignment = {0: "accelerator0", 1: "accelerator1", 2: "accelerator0", 3: "accelerator0"}
    checked = check_public(public, assignment, contiguous=True)
    assert any("circle" in fault for fault in checked.faults)
    assert any("holds 3 bytes" in fault for fault in checked.faults)
    assert not check_public(public, {0: "accelerator0"}, contiguous=True).value


@needs_data
@pytest.mark.parametrize("name", REFERENCE)
def test_the_reference_optimum_is_reached_and_proven(name: str) -> None:
    found = split(read_public(DATA / f"{name}.json.gz"))
    assert found.proven_optimal
    assert found.value == pytest.approx(REFERENCE[name], abs=5e-5)


@needs_data
def test_the_scattered_optimum_is_proven() -> None:
    pytest.importorskip("ortools")
    found = split_public(
        read_public(DATA / "op_bert_l-3_inference.json.gz"), contiguous=False, clock=no_clock, seconds=120.0
    )
    assert found.proven_optimal
    assert found.value == pytest.approx(21.9084, abs=5e-5)

"""Candidates: every node type, number of GPUs and link that a cluster file describes."""

from pathlib import Path

import pytest
from placing import cluster_of, example_cluster

from tonnage.configure.inventory import Candidate, candidates
from tonnage.errors import UsageError

GRACE = "nodes: [{name: grace, gpus: [{model: GH200}], cpu: {cores: 72}, memory: 480 GiB}]"
PAIRS = """
nodes:
  - name: pairs
    gpus: [{model: RTX 3090, count: 4}]
    cpu: {cores: 32}
    memory: 256 GiB
    links:
      - {kind: nvlink, between: [gpu0, gpu1]}
      - {kind: nvlink, between: [gpu2, gpu3]}
"""


def named(offered: tuple[Candidate, ...]) -> dict[str, Candidate]:
    return {candidate.name: candidate for candidate in offered}


def test_equal_nodes_count_once() -> None:
    names = [candidate.name for candidate in candidates(example_cluster())]
    assert names == [
        "hopper: no GPU", "hopper: H200, pcie", "desk: no GPU", "desk: RTX 4090, pcie", "desk: RTX 3090, pcie",
        "storage: no GPU",
    ]  # fmt: skip


def test_several_gpus_come_with_each_link_that_joins_them() -> None:
    names = [c.name for c in candidates(example_cluster(), 8) if c.node_type == "hopper" and c.gpu_count > 1]
    assert names == [f"hopper: {count} x H200, {link}" for count in (2, 4, 8) for link in ("nvlink", "pcie")]


def test_bridged_pairs_have_nvlink_for_two_and_pcie_for_four(tmp_path: Path) -> None:
    names = named(candidates(cluster_of(tmp_path, PAIRS), 4))
    assert "pairs: 2 x RTX 3090, nvlink" in names
    assert "pairs: 4 x RTX 3090, nvlink" not in names


def test_a_gpu_in_one_package_with_its_processor_communicates_by_nvlink(tmp_path: Path) -> None:
    grace = named(candidates(cluster_of(tmp_path, GRACE)))["grace: GH200, nvlink"]
    assert grace.host_bytes_second > 400e9
    assert grace.pcie is None


def test_generation_and_lanes_are_those_of_the_cluster_file() -> None:
    offered = named(candidates(example_cluster()))
    assert offered["hopper: H200, pcie"].pcie == (5, 16)
    assert offered["desk: RTX 4090, pcie"].pcie == (4, 8)


def test_no_gpu_at_most_is_refused() -> None:
    with pytest.raises(UsageError, match="none at all"):
        candidates(example_cluster(), 0)

"""Links, paths and the reading of correct cluster files."""

from pathlib import Path

import pytest

from tonnage.errors import NotFound
from tonnage.hardware import Cluster, read_cluster
from tonnage.hardware.addresses import split_address
from tonnage.units import GIB

EXAMPLE = Path(__file__).parents[2] / "examples" / "cluster.yaml"


def cluster_of(folder: Path, text: str) -> Cluster:
    path = folder / "cluster.yaml"
    path.write_text(text)
    return read_cluster(path)


@pytest.fixture
def laboratory() -> Cluster:
    return read_cluster(EXAMPLE)


def test_the_example_describes_unequal_nodes(laboratory: Cluster) -> None:
    names = [node.name for node in laboratory.nodes]
    assert names == ["hopper-0", "hopper-1", "desk-0", "desk-1", "desk-2", "desk-3", "storage"]
    assert len(list(laboratory.gpus())) == 24
    assert laboratory.node("storage").gpus == ()
    assert laboratory.node("desk-3").memory_bytes == 128 * GIB


def test_gpus_of_a_node_talk_over_nvlink(laboratory: Cluster) -> None:
    assert [link.kind for link in laboratory.path("hopper-0/gpu0", "hopper-0/gpu7")] == ["nvlink"]
    assert laboratory.bandwidth_bytes_second("hopper-0/gpu0", "hopper-0/gpu7") == 450 * 10**9


def test_the_slowest_link_on_the_way_decides(laboratory: Cluster) -> None:
    assert laboratory.bandwidth_bytes_second("hopper-0/gpu0", "hopper-1/gpu3") == 50 * 10**9
    assert laboratory.latency_seconds("hopper-0/gpu0", "hopper-1/gpu3") == pytest.approx(6e-6)


def test_a_way_may_lead_over_switches(laboratory: Cluster) -> None:
    path = laboratory.path("desk-0/gpu0", "storage")
    assert [link.members for link in path[:2]] == [("desk-0/gpu0", "desk-0/plx"), ("desk-0/plx", "desk-0")]
    assert path[1].shared


def test_the_two_directions_may_differ(laboratory: Cluster) -> None:
    assert laboratory.bandwidth_bytes_second("storage", "core") == 25 * 10**9 // 8
    assert laboratory.bandwidth_bytes_second("core", "storage") == 10 * 10**9 // 8


def test_a_place_that_does_not_exist_is_named(laboratory: Cluster) -> None:
    with pytest.raises(NotFound, match="no place 'hopper-9'"):
        laboratory.path("hopper-9", "storage")


def test_nodes_without_a_link_cannot_be_reached(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path, "nodes: [{name: a, count: 2, cpu: {cores: 1}, memory: 1 GiB}]")
    with pytest.raises(NotFound, match="no link leads from 'a-0' to 'a-1'"):
        cluster.path("a-0", "a-1")


def test_a_gpu_without_a_stated_link_gets_pcie_from_the_catalogue(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path, "nodes: [{name: a, gpus: [{model: T4}], cpu: {cores: 1}, memory: 1 GiB}]")
    assert cluster.bandwidth_bytes_second("a/gpu0", "a") == pytest.approx(15.75e9, rel=0.001)


def test_a_matrix_of_links_becomes_one_link_for_each_pair(tmp_path: Path) -> None:
    text = """
nodes:
  - {name: a, cpu: {cores: 1}, memory: 1 GiB}
  - {name: b, cpu: {cores: 1}, memory: 1 GiB}
  - {name: c, cpu: {cores: 1}, memory: 1 GiB}
links:
  - kind: ethernet
    between: [a, b, c]
    latency: 5 us
    bandwidth_matrix:
      - [null, 8 Gbit/s, 1 Gbit/s]
      - [8 Gbit/s, null, null]
      - [2 Gbit/s, null, null]
"""
    cluster = cluster_of(tmp_path, text)
    rates = {(link.members, link.one_way): link.bandwidth_bytes_second for link in cluster.links}
    assert rates == {
        (("b", "a"), False): 10**9,
        (("c", "a"), True): 250_000_000,
        (("a", "c"), True): 125_000_000,
    }


def test_all_means_every_node(tmp_path: Path) -> None:
    text = """
nodes: [{name: a, count: 3, cpu: {cores: 1}, memory: 1 GiB}]
links: [{kind: ethernet, between: [all], bandwidth: 1 GB/s}]
"""
    assert cluster_of(tmp_path, text).links[0].members == ("a-0", "a-1", "a-2")


def test_anchors_and_merge_keys_may_be_used(tmp_path: Path) -> None:
    text = """
nodes:
  - &box {name: a, cpu: {cores: 4}, memory: 1 GiB}
  - {<<: *box, name: b}
"""
    assert [node.cpu_cores for node in cluster_of(tmp_path, text).nodes] == [4, 4]


def test_a_node_says_where_it_is_reached_how_fast_it_is_and_what_it_draws(laboratory: Cluster) -> None:
    assert [node.address for node in laboratory.nodes[:3]] == ["hopper01.lab", "hopper02.lab", None]
    assert [laboratory.node(name).speed for name in ("desk-0", "storage")] == [1.0, 0.5]
    assert laboratory.node("hopper-1").idle_watts == 1900


def test_addresses_may_be_listed(tmp_path: Path) -> None:
    text = "nodes: [{name: a, count: 2, cpu: {cores: 1}, memory: 1 GiB, address: ['[::1]:8643', '10.0.0.9']}]"
    assert [node.address for node in cluster_of(tmp_path, text).nodes] == ["[::1]:8643", "10.0.0.9"]


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("box3.lan", ("box3.lan", None)),
        ("10.0.0.7:8643", ("10.0.0.7", 8643)),
        ("[fd00::7]:8643", ("fd00::7", 8643)),
        ("fd00::7", ("fd00::7", None)),
    ],
)
def test_an_address_is_a_host_and_perhaps_a_port(address: str, parts: tuple[str, int | None]) -> None:
    assert split_address(address) == parts


def test_latencies_may_differ_by_pair_and_direction(tmp_path: Path) -> None:
    text = """
nodes: [{name: a, count: 3, cpu: {cores: 1}, memory: 1 GiB}]
links:
  - kind: ethernet
    bandwidth: 1 GB/s
    latency_matrix:
      - [null, 5 us, 7 us]
      - [5 us, null, null]
      - [9 us, null, null]
"""
    cluster = cluster_of(tmp_path, text)
    seconds = {(link.members, link.one_way): round(link.latency_seconds * 1e6) for link in cluster.links}
    assert seconds == {
        (("a-1", "a-0"), False): 5,
        (("a-2", "a-0"), True): 9,
        (("a-0", "a-2"), True): 7,
        (("a-2", "a-1"), False): 20,  # not known: the usual one of the kind
    }


def test_inputs_and_outputs_have_their_nodes(tmp_path: Path) -> None:
    text = "nodes: [{name: a, count: 2, cpu: {cores: 1}, memory: 1 GiB}]\ninputs: a-0\noutputs: a-1\n"
    cluster = cluster_of(tmp_path, text)
    assert (cluster.inputs, cluster.outputs) == ("a-0", "a-1")

"""From a catalogue entry or a cluster file to what a collective's cost depends on."""

from pathlib import Path

import pytest

from tonnage.errors import NotFound, UsageError
from tonnage.estimate.topology import DEFAULT_NETWORK, from_catalogue, from_cluster
from tonnage.hardware import Cluster, Link, Node, find_gpu, pcie_bytes_second, read_cluster

LABORATORY = Path(__file__).parents[2] / "examples" / "cluster.yaml"


@pytest.fixture(scope="module")
def laboratory() -> Cluster:
    return read_cluster(LABORATORY)


# -- the catalogue alone --------------------------------------------------------------------------------------------------


def test_gpus_with_links_of_their_own_use_them() -> None:
    topology = from_catalogue(find_gpu("A100 SXM 80GB"), 8)
    assert topology.inside is not None
    assert (topology.inside.kind, topology.inside.bytes_second) == ("nvlink", 300e9)
    assert not topology.has_multicast
    assert from_catalogue(find_gpu("H200"), 8).has_multicast


def test_gpus_without_links_go_through_the_host() -> None:
    topology = from_catalogue(find_gpu("RTX 4090"), 4)
    assert topology.inside is not None
    assert (topology.inside.kind, topology.inside.bytes_second) == ("pcie", pcie_bytes_second(4, 16))


def test_a_bridge_joins_two_cards_and_no_more() -> None:
    card = find_gpu("RTX 3090")
    pair, three = from_catalogue(card, 2), from_catalogue(card, 3)
    assert pair.inside is not None
    assert three.inside is not None
    assert (pair.inside.kind, three.inside.kind) == ("nvlink", "pcie")


def test_in_a_mesh_only_the_links_to_the_chosen_gpus_serve() -> None:
    two, eight = from_catalogue(find_gpu("MI300X"), 2), from_catalogue(find_gpu("MI300X"), 8)
    assert two.inside is not None
    assert eight.inside is not None
    assert two.inside.bytes_second == pytest.approx(eight.inside.bytes_second / 7)


def test_more_than_eight_gpus_need_a_network_and_the_answer_says_which() -> None:
    topology = from_catalogue(find_gpu("H200"), 16)
    assert (topology.nodes, topology.ranks_on_node, topology.between) == (2, 8, DEFAULT_NETWORK)
    assert "2 nodes of 8 GPUs by infiniband of 50 GB/s: assumed" in topology.note
    assert from_catalogue(find_gpu("H200"), 8).note == ""


def test_one_gpu_needs_nothing() -> None:
    topology = from_catalogue(find_gpu("H200"), 1)
    assert (topology.ranks, topology.inside, topology.between) == (1, None, None)
    with pytest.raises(UsageError):
        from_catalogue(find_gpu("H200"), 0)


# -- a cluster ------------------------------------------------------------------------------------------------------------


def test_a_node_means_all_its_gpus(laboratory: Cluster) -> None:
    topology = from_cluster(laboratory, ["hopper-0"])
    assert str(topology) == "8 GPUs by nvlink of 450 GB/s"
    assert topology == from_cluster(laboratory, [f"hopper-0/gpu{index}" for index in range(8)])


def test_nodes_are_joined_by_their_network(laboratory: Cluster) -> None:
    assert str(from_cluster(laboratory, ["hopper-0", "hopper-1"])) == (
        "16 GPUs by nvlink of 450 GB/s, 2 nodes by infiniband of 50 GB/s"
    )


def test_the_slowest_link_on_the_way_decides(laboratory: Cluster) -> None:
    topology = from_cluster(laboratory, ["hopper-0/gpu0", "desk-1/gpu1"])
    assert str(topology) == "2 GPUs, 2 nodes by ethernet of 1.25 GB/s"
    assert topology.between is not None
    assert topology.between.latency_seconds == pytest.approx(50e-6)


def test_hops_over_a_shared_link_divide_it() -> None:
    places = ("gpu0", "gpu1", "gpu2", "host")
    bus = Link(kind="pcie", members=places, bandwidth_bytes_second=12, latency_seconds=0, shared=True)
    node = Node(name="box", group="box", cpu_cores=8, memory_bytes=1, gpus=(find_gpu("T4"),) * 3, links=(bus,))
    topology = from_cluster(Cluster(name="one", nodes=(node,)), ["box"])
    assert topology.inside is not None
    assert topology.inside.bytes_second == 12 / 3


def test_gpus_deliver_no_more_to_the_network_than_their_own_links_carry() -> None:
    pcie = Link(kind="pcie", members=("gpu0", "host"), bandwidth_bytes_second=5, latency_seconds=0)
    nodes = tuple(
        Node(name=name, group=name, cpu_cores=8, memory_bytes=1, gpus=(find_gpu("T4"),), links=(pcie,)) for name in "ab"
    )
    network = Link(kind="ethernet", members=("a", "b"), bandwidth_bytes_second=100, latency_seconds=0)
    topology = from_cluster(Cluster(name="two", nodes=nodes, links=(network,)), ["a", "b"])
    assert topology.between is not None
    assert topology.between.bytes_second == 5


@pytest.mark.parametrize("places", [["storage"], ["hopper-0/gpu9"], []])
def test_what_is_no_gpu_is_refused(laboratory: Cluster, places: list[str]) -> None:
    with pytest.raises(UsageError):
        from_cluster(laboratory, places)


def test_an_unknown_node_is_refused(laboratory: Cluster) -> None:
    with pytest.raises(NotFound):
        from_cluster(laboratory, ["nowhere"])

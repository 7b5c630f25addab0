"""The cost of collectives at its limits, and beside published bandwidths."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from published_bandwidth import PUBLISHED, Published

from tonnage.errors import UsageError
from tonnage.estimate.collectives import Cost, all_gather, all_reduce, broadcast, bus_bandwidth, reduce_scatter
from tonnage.estimate.communication import NCCL, Algorithm, gloo
from tonnage.estimate.topology import Fabric, Topology, from_catalogue
from tonnage.hardware import find_gpu
from tonnage.units import MIB

Collective = Callable[[float, Topology], Cost]
COLLECTIVES: tuple[Collective, ...] = (all_reduce, reduce_scatter, all_gather, broadcast)
NVLINK = Fabric(kind="nvlink", bytes_second=300e9)
NETWORK = Fabric(kind="infiniband", bytes_second=50e9, latency_seconds=2e-6)

sizes = st.integers(1, 10**10)
rates = st.floats(1e6, 1e13)


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    nodes = draw(st.integers(1, 64))
    kind = draw(st.sampled_from(["nvlink", "pcie", "infinity_fabric"]))
    network = Fabric(kind="ethernet", bytes_second=draw(rates), latency_seconds=draw(st.floats(0, 1e-3)))
    return Topology(
        ranks=nodes * draw(st.integers(1, 8)),
        nodes=nodes,
        inside=Fabric(kind=kind, bytes_second=draw(rates)),
        between=network if nodes > 1 else None,
        has_multicast=nodes == 1 and kind == "nvlink" and draw(st.booleans()),
    )


def one_node(ranks: int, bytes_second: float = 300e9) -> Topology:
    return Topology(ranks=ranks, inside=Fabric(kind="nvlink", bytes_second=bytes_second))


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_one_gpu_has_nobody_to_talk_to(collective: Collective) -> None:
    assert collective(10**9, Topology(ranks=1)).seconds == 0
    assert collective(0, one_node(8)).seconds == 0


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_with_endless_bandwidth_only_latency_is_left(collective: Collective) -> None:
    cost = collective(10**9, one_node(8, float("inf")))
    assert cost.seconds == cost.latency_seconds > 0


def test_a_ring_sends_what_the_theory_says() -> None:
    ring = gloo(hop_seconds=0)
    topology = Topology(ranks=4, nodes=4, between=Fabric(kind="ethernet", bytes_second=1e9))
    assert all_reduce(400, topology, ring).sent_bytes == 2 * 3 / 4 * 400
    assert reduce_scatter(400, topology, ring).sent_bytes == 3 / 4 * 400
    assert all_gather(400, topology, ring).seconds == pytest.approx(300 / 1e9)
    assert broadcast(400, topology, ring).sent_bytes == 400


@given(size=sizes, topology=topologies())
def test_an_all_reduce_is_at_most_a_reduce_scatter_and_an_all_gather(size: int, topology: Topology) -> None:
    ring = gloo(hop_seconds=1e-5)
    parts = reduce_scatter(size, topology, ring).seconds + all_gather(size, topology, ring).seconds
    # NCCL counts two steps between nodes more for the all-reduce.
    slack = 2 * (1e-5 + (topology.between.latency_seconds if topology.between else 0))
    assert all_reduce(size, topology, ring).seconds <= parts + slack + 1e-12


def test_a_tree_is_sooner_for_tiny_messages_on_many_nodes() -> None:
    many = Topology(ranks=64, nodes=64, between=NETWORK)
    assert all_reduce(64, many).algorithm == Algorithm.TREE
    assert all_reduce(10**10, many).algorithm == Algorithm.RING


def test_small_messages_take_the_protocol_with_the_least_latency() -> None:
    assert all_reduce(1000, one_node(8)).protocol == "LL"
    assert all_reduce(10**9, one_node(8)).protocol == "Simple"


def test_latency_is_all_that_counts_for_small_messages() -> None:
    assert all_reduce(64, one_node(8)).seconds == pytest.approx(all_reduce(4096, one_node(8)).seconds, rel=0.01)


@given(size=sizes, topology=topologies(), factor=st.floats(1, 100))
def test_more_bandwidth_is_never_slower(size: int, topology: Topology, factor: float) -> None:
    def faster(fabric: Fabric | None) -> Fabric | None:
        return fabric and Fabric(
            kind=fabric.kind, bytes_second=fabric.bytes_second * factor, latency_seconds=fabric.latency_seconds
        )

    better = Topology(
        ranks=topology.ranks,
        nodes=topology.nodes,
        inside=faster(topology.inside),
        between=faster(topology.between),
        has_multicast=topology.has_multicast,
    )
    for collective in COLLECTIVES:
        assert collective(size, better).seconds <= collective(size, topology).seconds * (1 + 1e-9)


@given(size=sizes, more=sizes, topology=topologies())
def test_more_bytes_are_never_sooner_there(size: int, more: int, topology: Topology) -> None:
    for collective in COLLECTIVES:
        assert collective(size, topology).seconds <= collective(size + more, topology).seconds


@given(size=sizes, topology=topologies())
def test_the_switch_is_used_only_if_it_helps(size: int, topology: Topology) -> None:
    without = Topology(ranks=topology.ranks, nodes=topology.nodes, inside=topology.inside, between=topology.between)
    assert all_reduce(size, topology).seconds <= all_reduce(size, without).seconds


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: f"{row.count} x {row.gpu}")
def test_large_all_reduces_reach_the_published_bandwidth(row: Published) -> None:
    reached = bus_bandwidth(8e9, from_catalogue(find_gpu(row.gpu), row.count))
    assert row.low_bytes_second <= reached <= row.high_bytes_second


def test_links_of_unknown_kind_count_as_network() -> None:
    assert NCCL.share("carrier pigeon") == NCCL.share("network")


def test_gpus_without_links_are_refused() -> None:
    with pytest.raises(UsageError, match="nothing connects the 4 GPUs on 2 nodes"):
        Topology(ranks=4, nodes=2, inside=NVLINK)
    with pytest.raises(UsageError, match="cannot be spread"):
        Topology(ranks=2, nodes=3, between=NETWORK)


def test_a_bucket_on_eight_gpus_takes_a_fraction_of_a_millisecond() -> None:
    assert 1e-4 < all_reduce(25 * MIB, from_catalogue(find_gpu("A100 SXM 80GB"), 8)).seconds < 4e-4

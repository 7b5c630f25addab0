"""Packing: every policy respects every limit, the default one strands fewer GPUs, and the checker notices what is wrong."""

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from packing_examples import node, pod, random_instance, small_cluster, small_workload

from tonnage.allocate.packing.arrivals import draw_arrivals
from tonnage.allocate.packing.check import check_packing
from tonnage.allocate.packing.cluster import Cluster
from tonnage.allocate.packing.least_loss import LeastLoss
from tonnage.allocate.packing.openb import parse_nodes, parse_pods
from tonnage.allocate.packing.pods import Assignment
from tonnage.allocate.packing.room import Room
from tonnage.allocate.packing.simulate import POLICIES, pack
from tonnage.errors import UsageError

DATA = Path(__file__).parents[3] / "shared" / "data" / "jobs"
every_policy = pytest.mark.parametrize("policy", POLICIES)


def lines(name: str) -> list[str]:
    return gzip.decompress((DATA / f"{name}.csv.gz").read_bytes()).decode().splitlines()


def mean_share(policy: str, seeds: int = 4) -> float:
    packings = [pack(small_cluster(), small_workload(), policy, seed) for seed in range(seeds)]
    return sum(packing.allocated_share for packing in packings) / seeds


@every_policy
@pytest.mark.parametrize("seed", range(12))
def test_no_policy_ever_exceeds_a_limit(policy: str, seed: int) -> None:
    nodes, pods = random_instance(seed)
    packing = pack(nodes, pods, policy, seed)
    checked = check_packing(nodes, packing.arrived(pods), packing.assignments)
    assert checked.problems == ()
    assert checked.allocated_share == pytest.approx(packing.allocated_share)


@every_policy
def test_what_arrived_is_either_allocated_or_dropped_for_a_reason(policy: str) -> None:
    nodes, pods = small_cluster(), small_workload()
    packing = pack(nodes, pods, policy, 0)
    arrived_gpus = sum(p.demand_milli for p in packing.arrived(pods)) / 1000
    allocated_gpus = packing.allocated_share * sum(n.gpu_count for n in nodes)
    assert allocated_gpus + sum(packing.dropped_gpus.values()) == pytest.approx(arrived_gpus)


@every_policy
def test_a_pod_is_dropped_only_if_it_fits_nowhere(policy: str) -> None:
    nodes, pods = random_instance(3)
    packing = pack(nodes, pods, policy, 3)
    cluster, placed = Cluster(nodes, pods), {a.arrival: a for a in packing.assignments}
    for number, index in enumerate(packing.arrivals):
        pod_type = int(cluster.types.of_pod[index])
        assert cluster.fits(pod_type).any() == (number in placed)
        if number in placed:
            cluster.place(pod_type, placed[number].node, placed[number].gpus)


@every_policy
def test_a_seed_gives_the_same_packing_again(policy: str) -> None:
    nodes, pods = random_instance(5)
    assert pack(nodes, pods, policy, 5) == pack(nodes, pods, policy, 5)


@pytest.mark.parametrize("other", [name for name in POLICIES if name != "room"])
def test_keeping_room_allocates_more_than_any_other_policy(other: str) -> None:
    assert mean_share("room") > mean_share(other) + 0.003


def test_keeping_room_leaves_whole_nodes_for_large_pods() -> None:
    nodes = tuple(node(f"n{i}") for i in range(4))
    pods = (*(pod() for _ in range(16)), pod(8000, 8000, 8), pod(8000, 8000, 8))
    packings = [pack(nodes, pods, "room", seed) for seed in range(10)]
    assert [packing.allocated_share for packing in packings] == [1.0] * 10


def test_cpu_hungry_pods_go_where_cpus_are_plenty() -> None:
    nodes = (node("poor", cpu=16_000, gpus=2), node("rich", cpu=104_000, gpus=2))
    pods = (pod(12_000), pod(3000), pod(3000))
    cluster = Cluster(nodes, pods)
    hungry = int(cluster.types.of_pod[0])
    choice = LeastLoss(Room(cluster), cluster).choose(cluster, hungry, cluster.fits(hungry))
    assert nodes[choice.node].name == "rich"


def test_a_share_goes_to_the_gap_that_it_fills() -> None:
    nodes, pods = (node(gpus=3),), (pod(milli=650), pod(milli=470), pod(milli=320), pod())
    cluster = Cluster(nodes, pods)
    types = [int(t) for t in cluster.types.of_pod]
    cluster.place(types[0], 0, (0,))
    cluster.place(types[1], 0, (1,))
    choice = LeastLoss(Room(cluster), cluster).choose(cluster, types[2], cluster.fits(types[2]))
    assert choice.gpus == (0,)


def test_a_pod_that_needs_no_cpus_has_room_on_a_node_without() -> None:
    cluster = Cluster((node(cpu=0, memory=0, gpus=3),), (pod(0, 0, 1, 400), pod(0, 0, 2)))
    assert Room(cluster).pods(cluster.states(np.array([0]))).tolist() == [[6.0, 1.0]]


def test_remembered_losses_are_those_of_a_fresh_look() -> None:
    nodes, pods = small_cluster(), small_workload()
    cluster = Cluster(nodes, pods)
    room = Room(cluster)
    policy = LeastLoss(room, cluster)
    for pod_type in cluster.types.of_pod[draw_arrivals(np.ones(len(pods)), 120, 1)].tolist():
        fits = cluster.fits(pod_type)
        choice = policy.choose(cluster, pod_type, fits)
        losses, _ = room.losses(cluster, pod_type, np.flatnonzero(fits))
        chosen = losses[np.flatnonzero(fits).tolist().index(choice.node)]
        assert chosen == pytest.approx(losses.min())
        cluster.place(pod_type, choice.node, choice.gpus)


def test_the_reason_for_a_dropped_pod_is_what_is_missing() -> None:
    nodes = (node(cpu=10_000, memory=10_000, gpus=4, model="G2"),)
    for lacking, wanted in {
        "cpus": pod(6000, 10), "memory": pod(10, 6000), "never_fits": pod(models="T4"), "gpus": pod(10, 10, 3),
    }.items():  # fmt: skip
        dropped = pack(nodes, (wanted,), "room", 0).dropped_gpus
        assert {reason for reason, gpus in dropped.items() if gpus} == {lacking}


def test_an_unknown_policy_is_refused_with_those_that_exist() -> None:
    with pytest.raises(UsageError, match="no policy 'worst-fit'") as caught:
        pack(small_cluster(), small_workload(), "worst-fit", 0)
    assert "best-fit" in caught.value.hint


# -- arrivals -------------------------------------------------------------------------------------------------------------


def test_the_whole_list_arrives_before_any_pod_comes_again() -> None:
    arrivals = draw_arrivals(np.full(50, 1000.0), 80_000, seed=3)
    assert sorted(arrivals[:50].tolist()) == list(range(50))
    assert len(arrivals) == 80


def test_the_last_arrival_is_the_one_that_reaches_the_capacity() -> None:
    demand = np.array([0.0, 810.0, 1000.0, 8000.0])
    arrived = demand[draw_arrivals(demand, 100_000, seed=1)]
    assert arrived.sum() >= 100_000 > arrived[:-1].sum()


def test_tiny_pods_arrive_as_often_as_it_takes() -> None:
    assert len(draw_arrivals(np.ones(1), 100_000, seed=0)) == 100_000


def test_a_list_larger_than_the_cluster_is_cut() -> None:
    assert len(draw_arrivals(np.full(50, 1000.0), 10_000, seed=0)) == 10


# -- the checker ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("assignments", "words"),
    [
        ([Assignment(0, 0, (0,)), Assignment(1, 0, (0,))], "GPU 0 of n holds 1200 thousandths"),
        ([Assignment(0, 0, (0,)), Assignment(0, 0, (1,))], "arrival 0 is placed 2 times"),
        ([Assignment(2, 0, (1, 1))], "needs 2 different GPUs"),
        ([Assignment(2, 0, (0,))], "needs 2 different GPUs"),
        ([Assignment(0, 0, (2,))], "n has 2 GPUs"),
        ([Assignment(3, 0, (0,))], "does not accept G2"),
        ([Assignment(4, 0, (0,))], "more than its 10 thousandths of CPUs"),
        ([Assignment(5, 0, (0,))], "more than its 20 MiB"),
    ],
)
def test_the_checker_notices(assignments: list[Assignment], words: str) -> None:
    nodes = (node(cpu=10, memory=20, gpus=2),)
    share = pod(1, 1, 1, 600)
    arrived = [share, share, pod(1, 1, 2), pod(1, 1, models="T4"), pod(11, 1), pod(1, 21)]
    problems = check_packing(nodes, arrived, assignments).problems
    assert len(problems) == 1
    assert words in problems[0]


# -- the real list --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(not DATA.exists(), reason="the openb list is not there: ../shared/data/jobs beside the repository")
def test_more_than_95_5_percent_of_the_openb_cluster_are_allocated() -> None:
    nodes, pods = parse_nodes(lines("openb_nodes"), "nodes"), parse_pods(lines("openb_pods_default"), "pods")
    packings = [pack(nodes, pods, "room", seed) for seed in (20, 21)]
    checked = [check_packing(nodes, packing.arrived(pods), packing.assignments) for packing in packings]
    assert [found.problems for found in checked] == [(), ()]
    assert all(found.allocated_share > 0.955 for found in checked)


def test_the_order_of_the_nodes_hardly_matters() -> None:
    nodes = small_cluster()
    shares = [pack(order, small_workload(), "room", 1).allocated_share for order in (nodes, nodes[::-1])]
    assert abs(shares[0] - shares[1]) < 0.02


def test_pods_without_gpus_are_packed_but_not_counted() -> None:
    nodes = (node(cpu=10_000, gpus=1), replace(node(cpu=4000, gpus=0), model=""))
    packing = pack(nodes, (pod(4000, 10, 0, 0), pod(10_000)), "room", 2)
    assert packing.allocated_share == 1.0
    assert len(packing.assignments) == 2

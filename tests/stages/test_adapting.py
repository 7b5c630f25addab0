"""Rounds of runs: what changes is noticed, planned for, and then predicted right; other failures go through."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from pipelines import chain
from worlds import World, cluster_of, died

from tonnage.errors import Unreachable
from tonnage.hardware import Cluster
from tonnage.split.cluster_problem import Training
from tonnage.split.devices import Fabric
from tonnage.split.distributing import best_for
from tonnage.split.fabric_now import fabric_now
from tonnage.split.fabric_of import fabric_of
from tonnage.split.network import Network
from tonnage.split.observations import PlaceStatistics, Statistics
from tonnage.split.pool import make_pool
from tonnage.split.targets import Target
from tonnage.stages.adapting import Round, adapt
from tonnage.stages.hosts import LostWorkers

TWELVE = chain([1.0] * 12)
LARGE = chain([1.0] * 12, output_bytes=3_000_000_000)  # 3 s on a link, of the 4 s that a device computes


def fabric(folder: Path, speeds: Sequence[float] = (1, 1, 1), rate: str = "1 GB/s") -> Fabric:
    """`rate` is that of the link of n0."""
    return fabric_of(cluster_of(folder, speeds=speeds, rates=(rate, "1 GB/s", "1 GB/s")))


def rounds_of(world: World, cluster: Cluster, network: Network, rounds: int, training: bool = False) -> list[Round]:
    pool = make_pool(network, fabric_of(cluster), training=Training(micro_batches=4) if training else None)
    return list(adapt(best_for(pool, Target.THROUGHPUT), pool, cluster, world.carry, rounds=rounds))


def speed(done: Round, device: str) -> float:
    entry = next(each for each in done.seen.places if each.place == device)
    assert entry.speed is not None
    return entry.speed.median


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return cluster_of(tmp_path)


def test_what_goes_as_predicted_stays(cluster: Cluster) -> None:
    world = World([fabric_of(cluster)])
    done = rounds_of(world, cluster, TWELVE, 3)
    assert [each.measured_seconds for each in done] == [4.0, 4.0, 4.0]
    assert all(each.replanned is None for each in done)


@pytest.mark.parametrize("training", [False, True])
def test_a_straggler_is_noticed_and_the_next_prediction_is_right(
    cluster: Cluster, tmp_path: Path, training: bool
) -> None:
    world = World([fabric(tmp_path, (1, 1 / 3, 1))])
    network = chain([1.0] * 12, backward=2.0) if training else TWELVE
    first, second = rounds_of(world, cluster, network, 2, training)
    assert speed(first, "n1") == pytest.approx(1 / 3)
    assert first.replanned is not None
    assert first.replanned.pays
    assert first.replanned.distribution.metrics is not None
    assert first.replanned.distribution.metrics.period_seconds == pytest.approx(18.0 if training else 6.0)
    assert first.replanned.old_period_seconds == pytest.approx(36.0 if training else 12.0)
    assert second.measured_seconds == pytest.approx(second.predicted_seconds)
    assert second.measured_seconds < first.measured_seconds  # type: ignore[operator]  # no worker was lost
    assert second.replanned is None


def test_speeds_are_those_of_the_file_after_several_plans(cluster: Cluster, tmp_path: Path) -> None:
    world = World([fabric(tmp_path, (1, 1 / 2, 1)), fabric(tmp_path, (1, 1 / 6, 1))])
    first, second, third = rounds_of(world, cluster, TWELVE, 3)
    assert (speed(first, "n1"), second.predicted_seconds) == (pytest.approx(1 / 2), 5.0)
    assert (speed(second, "n1"), second.measured_seconds) == (pytest.approx(1 / 6), pytest.approx(12.0))
    assert third.measured_seconds == pytest.approx(third.predicted_seconds) == 6.0


def test_a_straggler_that_is_well_again_gets_its_work_back(cluster: Cluster, tmp_path: Path) -> None:
    """Of which the period tells nothing: others set it."""
    world = World([fabric(tmp_path, (1, 1 / 2, 1)), fabric(tmp_path)])
    first, second, third = rounds_of(world, cluster, TWELVE, 3)
    assert first.replanned is not None
    assert second.measured_seconds == second.predicted_seconds == 5.0
    assert second.replanned is not None
    assert third.predicted_seconds == third.measured_seconds == 4.0


def test_a_straggler_that_sets_no_period_is_remembered(cluster: Cluster, tmp_path: Path) -> None:
    """Operations of 4, 1 and 4 s, one on each node: the one of 1 s takes 3 s."""
    network = chain([4.0, 1.0, 4.0])
    idle = best_for(make_pool(network, fabric_of(cluster)), Target.THROUGHPUT).assignment["op1"]
    world = World([fabric(tmp_path, [1 / 3 if f"n{number}" == idle else 1 for number in range(3)])])
    first, second = rounds_of(world, cluster, network, 2)
    assert first.replanned is None
    assert second.measured_seconds == 4.0
    assert speed(first, idle) == pytest.approx(1 / 3)


def test_a_narrow_link_is_noticed_and_avoided(cluster: Cluster, tmp_path: Path) -> None:
    """Each of its directions when it is in use."""
    world = World([fabric(tmp_path, rate="0.25 GB/s")])
    first, *_, last = rounds_of(world, cluster, LARGE, 4)
    assert (first.predicted_seconds, first.measured_seconds) == (4.0, 12.0)
    assert first.replanned is not None
    assert first.replanned.pays
    assert "n0" not in last.distribution.stages
    assert last.measured_seconds == last.predicted_seconds == 6.0


def test_a_halved_link_that_is_still_worth_it_is_predicted_right(tmp_path: Path) -> None:
    """One node alone would take 2 s. The second round tries the other direction, of which nothing was known."""
    cluster = cluster_of(tmp_path, speeds=(1, 1), rates=("1 GB/s", "1 GB/s"))
    world = World([fabric_of(cluster_of(tmp_path, speeds=(1, 1), rates=("0.5 GB/s", "0.5 GB/s")))])
    done = rounds_of(world, cluster, chain([1.0, 1.0], output_bytes=900_000_000), 4)
    assert [each.measured_seconds for each in done] == [1.8, 1.8, 1.8, 1.8]
    assert [each.predicted_seconds for each in done] == [1.0, 1.0, 1.8, 1.8]
    assert [each.replanned is not None and each.replanned.pays for each in done] == [True, False, False, False]
    assert done[2].distribution.assignment == done[1].distribution.assignment
    assert done[2].replanned is None


@pytest.mark.parametrize("lost", ["n0", "n1", "n2"])
def test_a_node_that_dies_is_replaced_by_those_left(cluster: Cluster, lost: str) -> None:
    world = World([fabric_of(cluster)], failures={0: died(lost)})
    first, second = rounds_of(world, cluster, TWELVE, 2)
    assert (first.outcome, first.measured_seconds) == (None, None)
    assert first.as_dict()["lost"] == [lost]
    assert lost not in second.distribution.stages
    assert second.predicted_seconds == second.measured_seconds == 6.0


def test_nodes_may_die_one_after_the_other(cluster: Cluster) -> None:
    world = World([fabric_of(cluster)], failures={0: died("n0"), 1: died("n1")})
    last = rounds_of(world, cluster, TWELVE, 3)[-1]
    assert (last.distribution.stages, last.measured_seconds) == (("n2",), 12.0)


def test_where_nothing_is_better_nothing_moves(cluster: Cluster, tmp_path: Path) -> None:
    world = World([fabric(tmp_path, (0.5, 0.5, 0.5))])
    first, second = rounds_of(world, cluster, TWELVE, 2)
    assert (first.predicted_seconds, first.measured_seconds) == (4.0, 8.0)
    assert first.replanned is not None
    assert not first.replanned.pays
    assert first.replanned.migration.total_bytes == 0
    assert second.distribution.assignment == first.distribution.assignment
    assert second.predicted_seconds == 8.0
    assert second.replanned is None


def test_nothing_is_planned_after_the_last_round(cluster: Cluster, tmp_path: Path) -> None:
    (only,) = rounds_of(World([fabric(tmp_path, (1, 1 / 3, 1))]), cluster, TWELVE, 1)
    assert only.measured_seconds == 12.0
    assert only.replanned is None


def test_a_loss_in_the_last_round_goes_through(cluster: Cluster) -> None:
    with pytest.raises(LostWorkers, match="the worker of n1 died"):
        rounds_of(World([fabric_of(cluster)], failures={1: died("n1")}), cluster, TWELVE, 2)


def test_the_loss_of_the_only_device_goes_through(tmp_path: Path) -> None:
    alone = cluster_of(tmp_path, speeds=(1,), rates=("1 GB/s",))
    with pytest.raises(LostWorkers, match="the worker of n0 died"):
        rounds_of(World([fabric_of(alone)], failures={0: died("n0")}), alone, TWELVE, 2)


@pytest.mark.parametrize("error", [Unreachable("nothing moved for 20 s: n1 was waiting"), LostWorkers("no word", [])])
def test_a_failure_that_is_not_of_one_device_goes_through(cluster: Cluster, error: Unreachable) -> None:
    with pytest.raises(Unreachable) as caught:
        rounds_of(World([fabric_of(cluster)], failures={0: error}), cluster, TWELVE, 3)
    assert caught.value is error


def test_what_was_known_at_the_beginning_is_not_forgotten(cluster: Cluster, tmp_path: Path) -> None:
    """n2 is lost before the first round, and n1 slow in it."""
    gone = PlaceStatistics(place="n2", taken_at=time.time(), valid_seconds=60, is_lost=True)
    known = Statistics(places=(gone,))
    pool = make_pool(TWELVE, fabric_now(cluster, known, now=time.time()))
    world = World([fabric(tmp_path, (1, 1 / 3, 1))])
    first, second = adapt(
        best_for(pool, Target.THROUGHPUT), pool, cluster, world.carry, rounds=2, statistics=known
    )  # fmt: skip
    assert first.replanned is not None
    assert "n2" not in second.distribution.stages
    assert second.measured_seconds == pytest.approx(second.predicted_seconds) == 9.0


def test_rounds_are_plain_data(cluster: Cluster, tmp_path: Path) -> None:
    first, second = rounds_of(World([fabric(tmp_path, (1, 1 / 3, 1))]), cluster, TWELVE, 2)
    found = first.as_dict()
    assert (found["predicted_seconds"], found["lost"], found["failure"]) == (4.0, [], None)
    assert found["measured_seconds"] == pytest.approx(12.0)
    assert found["run"]["beside"][0]["what"] == "period"
    assert found["replan"]["migration"]["seconds_until_ahead"] > 0
    assert 0 < found["replan"]["seconds"] < 5
    assert second.as_dict()["replan"] is None

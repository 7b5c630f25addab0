"""What is lost is gone round; where that is not possible, two places are named."""

from pathlib import Path

import pytest

from tonnage.errors import DoesNotFit, UsageError
from tonnage.hardware import Cluster, read_cluster
from tonnage.split.devices import Fabric
from tonnage.split.fabric_now import fabric_now
from tonnage.split.observations import LinkStatistics, PlaceStatistics, Spread, Statistics

NOW = 1_000_000.0
NODES = "nodes: [{name: n, count: 3, cpu: {cores: 4}, memory: 8 GiB}]\n"
ALL = NODES + "links: [{kind: ethernet, bandwidth: 1 GB/s}]\n"
CHAIN = (
    NODES
    + """
links:
  - {kind: e, between: [n-0, n-1], bandwidth: 1 GB/s}
  - {kind: e, between: [n-1, n-2], bandwidth: 1 GB/s}
"""
)


def cluster_of(folder: Path, text: str) -> Cluster:
    path = folder / "cluster.yaml"
    path.write_text(text)
    return read_cluster(path)


def lost_link(*pairs: tuple[str, str]) -> Statistics:
    entries = (LinkStatistics(source=a, target=b, taken_at=NOW, valid_seconds=60, is_lost=True) for a, b in pairs)
    return Statistics(links=tuple(entries))


def lost_node(*names: str) -> Statistics:
    entries = (PlaceStatistics(place=name, taken_at=NOW, valid_seconds=60, is_lost=True) for name in names)
    return Statistics(places=tuple(entries))


def ways(fabric: Fabric) -> dict[str, list[str]]:
    return {
        f"{fabric.devices[i].name} to {fabric.devices[j].name}": [fabric.lanes[lane].name for lane in way.lanes]
        for (i, j), way in fabric.ways.items()
    }


def test_data_goes_round_a_lost_link(tmp_path: Path) -> None:
    found = ways(fabric_now(cluster_of(tmp_path, ALL), lost_link(("n-0", "n-1")), now=NOW))
    assert found["n-0 to n-1"] == ["n-0->n-2", "n-2->n-1"]
    assert found["n-1 to n-0"] == ["n-1->n-0"]


def test_two_nodes_that_lost_each_other_behind_a_switch_have_no_way(tmp_path: Path) -> None:
    text = NODES + "switches: [s]\nlinks: [{kind: e, between: [all, s], bandwidth: 1 GB/s, shared: true}]\n"
    found = ways(fabric_now(cluster_of(tmp_path, text), lost_link(("n-0", "n-1")), now=NOW))
    assert len(found) == 5
    assert "n-0 to n-1" not in found


def test_a_lost_node_is_left_out(tmp_path: Path) -> None:
    found = ways(fabric_now(cluster_of(tmp_path, ALL), lost_node("n-1"), now=NOW))
    assert found == {"n-0 to n-2": ["n-0->n-2"], "n-2 to n-0": ["n-2->n-0"]}


def test_nodes_that_only_a_lost_one_joined_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no way leads from n-0 to n-2"):
        fabric_now(cluster_of(tmp_path, CHAIN), lost_node("n-1"), now=NOW)


def test_with_every_node_lost_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(DoesNotFit, match="all 3 nodes are lost"):
        fabric_now(cluster_of(tmp_path, ALL), lost_node("n-0", "n-1", "n-2"), now=NOW)


def test_what_is_left_is_scaled(tmp_path: Path) -> None:
    slow = PlaceStatistics(place="n-2", taken_at=NOW, valid_seconds=60, speed=Spread(median=0.5, p95=0.5))
    statistics = Statistics(places=(*lost_node("n-1").places, slow))
    fabric = fabric_now(cluster_of(tmp_path, ALL), statistics, now=NOW)
    assert [(device.name, device.speed) for device in fabric.devices] == [("n-0", 1.0), ("n-2", 0.5)]


def test_the_ends_go_round_a_lost_link_as_well(tmp_path: Path) -> None:
    fabric = fabric_now(cluster_of(tmp_path, ALL + "inputs: n-0\n"), lost_link(("n-0", "n-1")), now=NOW)
    assert fabric.inputs is not None
    assert [fabric.lanes[lane].name for lane in fabric.inputs.ways[1].lanes] == ["n-0->n-2", "n-2->n-1"]


@pytest.mark.parametrize(("end", "sentence"), [("inputs", "inputs come from n-1"), ("outputs", "outputs end at n-1")])
def test_a_lost_end_is_told(tmp_path: Path, end: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=f"{sentence}, which is lost"):
        fabric_now(cluster_of(tmp_path, ALL + f"{end}: n-1\n"), lost_node("n-1"), now=NOW)


def test_an_old_loss_is_refused_like_anything_old(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the statistics of n-1 are 100 s old"):
        fabric_now(cluster_of(tmp_path, ALL), lost_node("n-1"), now=NOW + 100)


def test_unknown_places_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="statistics of 'x', which is not in the cluster"):
        fabric_now(cluster_of(tmp_path, ALL), lost_node("x"), now=NOW)

"""A cluster file becomes devices, lanes and ways."""

from dataclasses import replace
from pathlib import Path

import pytest

from tonnage.errors import UsageError
from tonnage.hardware import Cluster, read_cluster
from tonnage.split.devices import HERE, Fabric
from tonnage.split.fabric_of import fabric_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "cluster.yaml"
CPU = "cpu: {cores: 4}, memory: 8 GiB"


def cluster_of(folder: Path, text: str) -> Cluster:
    path = folder / "cluster.yaml"
    path.write_text(text)
    return read_cluster(path)


def lanes_between(fabric: Fabric, source: str, target: str) -> list[str]:
    names = [device.name for device in fabric.devices]
    way = fabric.ways[names.index(source), names.index(target)]
    return [fabric.lanes[lane].name for lane in way.lanes]


@pytest.fixture(scope="module")
def laboratory() -> Cluster:
    return read_cluster(EXAMPLE)


@pytest.fixture(scope="module")
def fabric(laboratory: Cluster) -> Fabric:
    return fabric_of(laboratory)


def test_every_gpu_is_a_device_and_so_are_nodes_without_any(fabric: Fabric) -> None:
    assert [device.name for device in fabric.devices][14:20] == [
        "hopper-1/gpu6", "hopper-1/gpu7", "desk-0/gpu0", "desk-0/gpu1", "desk-1/gpu0", "desk-1/gpu1",
    ]  # fmt: skip
    assert (fabric.devices[-1].name, fabric.devices[-1].kind, fabric.devices[-1].speed) == ("storage", "cpu", 0.5)


def test_hosts_of_gpu_nodes_are_devices_when_asked_for(laboratory: Cluster) -> None:
    names = [device.name for device in fabric_of(laboratory, with_hosts=True).devices]
    assert [name for name in names if "/" not in name] == [node.name for node in laboratory.nodes]


def test_memory_and_power_come_from_catalogue_and_node(fabric: Fabric) -> None:
    hopper = fabric.devices[0]
    assert (hopper.kind, hopper.active_watts, hopper.idle_watts) == ("H200", 700, 1900 / 8)
    assert hopper.memory_bytes == next(gpu.usable_bytes for gpu in read_cluster(EXAMPLE).node("hopper-0").gpus)


def test_every_way_is_the_quickest_one(laboratory: Cluster, fabric: Fabric) -> None:
    names = [device.name for device in fabric.devices]
    for source, target in [
        ("hopper-0/gpu0", "hopper-1/gpu3"),
        ("desk-1/gpu1", "storage"),
        ("storage", "hopper-0/gpu7"),
    ]:
        way = fabric.ways[names.index(source), names.index(target)]
        path = laboratory.path(source, target)
        assert [fabric.lanes[lane].bytes_second for lane in way.lanes] == [link.bandwidth_bytes_second for link in path]
        assert way.latency_seconds == pytest.approx(laboratory.latency_seconds(source, target))


def test_a_link_of_its_own_has_a_lane_for_each_direction(fabric: Fabric) -> None:
    assert lanes_between(fabric, "hopper-0/gpu0", "hopper-0/gpu1") == ["hopper-0/gpu0->hopper-0/gpu1"]
    assert lanes_between(fabric, "hopper-0/gpu1", "hopper-0/gpu0") == ["hopper-0/gpu1->hopper-0/gpu0"]


def test_all_traffic_of_a_shared_link_has_one_lane(fabric: Fabric) -> None:
    up = lanes_between(fabric, "desk-0/gpu0", "storage")[1]
    down = lanes_between(fabric, "storage", "desk-0/gpu1")[-2]
    assert up == down == "desk-0/plx=desk-0"


def test_a_disconnected_topology_names_two_places(tmp_path: Path) -> None:
    nodes = "nodes: [{name: a, count: 3, " + CPU + "}]\nlinks: [{kind: e, between: [a-0, a-1], bandwidth: 1 GB/s}]\n"
    with pytest.raises(UsageError, match="no way leads from a-0 to a-2") as caught:
        fabric_of(cluster_of(tmp_path, nodes))
    assert "add a link" in caught.value.hint


def test_one_way_out_is_not_a_way_back(tmp_path: Path) -> None:
    text = "nodes: [{name: a, count: 2, " + CPU + "}]\n"
    text += "links: [{kind: e, bandwidth_matrix: [[null, 1 GB/s], [null, null]]}]\n"
    with pytest.raises(UsageError, match="no way leads from a-1 to a-0"):
        fabric_of(cluster_of(tmp_path, text))


def test_one_node_needs_no_link(tmp_path: Path) -> None:
    fabric = fabric_of(cluster_of(tmp_path, "nodes: [{name: a, power_watts: 90, idle_watts: 20, " + CPU + "}]\n"))
    assert (fabric.ways, fabric.devices[0].active_watts, fabric.devices[0].idle_watts) == ({}, 90, 20)


def test_ends_have_ways_from_and_to_every_device(laboratory: Cluster) -> None:
    fabric = fabric_of(replace(laboratory, inputs="hopper-0", outputs="storage"))
    names = [device.name for device in fabric.devices]
    assert fabric.inputs is not None
    assert fabric.outputs is not None
    assert (fabric.inputs.node, fabric.outputs.node) == ("hopper-0", "storage")
    own = fabric.inputs.ways[names.index("hopper-0/gpu3")]
    assert [fabric.lanes[lane].name for lane in own.lanes] == ["hopper-0->hopper-0/gpu3"]
    far = fabric.outputs.ways[names.index("desk-1/gpu1")]
    path = laboratory.path("desk-1/gpu1", "storage")
    assert [fabric.lanes[lane].bytes_second for lane in far.lanes] == [link.bandwidth_bytes_second for link in path]
    assert far == fabric.ways[names.index("desk-1/gpu1"), names.index("storage")]
    assert fabric.outputs.ways[names.index("storage")] == HERE
    assert len(fabric.inputs.ways) == len(fabric.outputs.ways) == len(names)


def test_without_ends_in_the_file_the_fabric_has_none(tmp_path: Path) -> None:
    fabric = fabric_of(cluster_of(tmp_path, "nodes: [{name: a, " + CPU + "}]\n"))
    assert fabric.inputs is None
    assert fabric.outputs is None


@pytest.mark.parametrize(
    ("end", "sentence"),
    [
        ("inputs", "no way leads from box to box/gpu0 for the inputs"),
        ("outputs", "no way leads from box/gpu0 to box, where outputs end"),
    ],
)
def test_an_end_that_devices_cannot_reach_is_named(tmp_path: Path, end: str, sentence: str) -> None:
    """The GPUs are linked with each other alone."""
    text = "nodes: [{name: box, gpus: [{model: H200, count: 2}], " + CPU
    text += ", links: [{kind: pcie, between: [gpu0, gpu1]}]}]\n" + f"{end}: box\n"
    with pytest.raises(UsageError, match=sentence) as caught:
        fabric_of(cluster_of(tmp_path, text))
    assert "add a link" in caught.value.hint


def test_a_large_cluster_has_a_way_for_every_pair(tmp_path: Path) -> None:
    text = "nodes: [{name: a, count: 300, " + CPU + "}]\nlinks: [{kind: e, bandwidth: 1 GB/s}]\n"
    assert len(fabric_of(cluster_of(tmp_path, text)).ways) == 300 * 299

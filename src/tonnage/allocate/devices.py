"""The GPUs of a cluster as an allocation sees them."""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.allocate.problem import Device
from tonnage.hardware.cluster import Cluster, Node

_ISLAND_LINKS = ("nvlink", "infinity_fabric")


def devices_of_cluster(cluster: Cluster) -> tuple[Device, ...]:
    return tuple(device for node in cluster.nodes for device in _devices(node))


def _devices(node: Node) -> Iterator[Device]:
    islands = _islands(node)
    for index, gpu in enumerate(node.gpus):
        own = gpu.price_usd_hour or 0.0
        yield Device(
            place=f"{node.name}/gpu{index}",
            gpu=gpu.name,
            memory_bytes=gpu.usable_bytes,
            node=node.name,
            island=f"{node.name}/{islands[index]}",
            rack=node.labels.get("rack", ""),
            price_usd_hour=own if node.price_usd_hour is None else node.price_usd_hour / len(node.gpus),
        )


def _islands(node: Node) -> list[int]:
    """Of each GPU, the lowest number of those that it reaches by such links."""
    island = list(range(len(node.gpus)))
    for link in node.links:
        members = [int(name.removeprefix("gpu")) for name in link.members if name.startswith("gpu")]
        if link.kind in _ISLAND_LINKS and members:
            joined = {island[member] for member in members}
            island = [min(joined) if each in joined else each for each in island]
    return island

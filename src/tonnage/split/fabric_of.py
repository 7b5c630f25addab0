"""The devices of a cluster and the ways between them."""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.errors import UsageError
from tonnage.hardware.cluster import Cluster, Node
from tonnage.hardware.routes import Hop, Routes, way_to
from tonnage.split.devices import Device, End, Fabric, Lane, Way

CPU = "cpu"


def fabric_of(cluster: Cluster, *, with_hosts: bool = False) -> Fabric:
    """Every GPU is a device, and the processors of nodes without GPUs; `with_hosts`, those of all nodes.

    Data takes the way of `Cluster.path`. Raises `UsageError` where two devices have no way between them, or a device has
    none from the node of the inputs or to that of the outputs.
    """
    devices = tuple(device for node in cluster.nodes for device in _devices(node, with_hosts))
    routes, lanes = Routes(cluster.all_links()), _Lanes()
    ways: dict[tuple[int, int], Way] = {}
    inputs, outputs = dict[int, Way](), dict[int, Way]()
    for start, source in enumerate(devices):
        last_hops = routes.last_hops(source.name)
        for end, target in enumerate(devices):
            if start != end:
                ways[start, end] = lanes.way(_connected(target.name, last_hops, source.name))
        if cluster.outputs is not None:
            outputs[start] = lanes.way(_connected(cluster.outputs, last_hops, source.name, ", where outputs end"))
    if cluster.inputs is not None:
        last_hops = routes.last_hops(cluster.inputs)
        for end, target in enumerate(devices):
            inputs[end] = lanes.way(_connected(target.name, last_hops, cluster.inputs, " for the inputs"))
    return Fabric(
        devices=devices,
        lanes=tuple(lanes.found.values()),
        ways=ways,
        inputs=End(node=cluster.inputs, ways=inputs) if cluster.inputs is not None else None,
        outputs=End(node=cluster.outputs, ways=outputs) if cluster.outputs is not None else None,
    )


def _devices(node: Node, with_hosts: bool) -> Iterator[Device]:
    """Idle power is the node's and divided among its devices; power at work is the catalogue's for GPUs."""
    has_host = with_hosts or not node.gpus
    count = len(node.gpus) + has_host
    idle_watts = (node.idle_watts or 0.0) / count
    gpu_watts = sum(gpu.tdp_watts for gpu in node.gpus)
    share = min(node.power_watts / gpu_watts, 1.0) if node.power_watts and gpu_watts else 1.0
    for place, gpu in zip(node.gpu_places, node.gpus, strict=True):
        yield Device(
            name=place, node=node.name, kind=gpu.name, speed=node.speed, memory_bytes=gpu.usable_bytes,
            active_watts=max(gpu.tdp_watts * share, idle_watts), idle_watts=idle_watts,
        )  # fmt: skip
    if has_host:
        yield Device(
            name=node.name, node=node.name, kind=CPU, speed=node.speed, memory_bytes=node.memory_bytes,
            active_watts=max((node.power_watts or 0.0) - gpu_watts, idle_watts), idle_watts=idle_watts,
        )  # fmt: skip


def _connected(target: str, last_hops: dict[str, Hop], source: str, why: str = "") -> tuple[Hop, ...]:
    hops = way_to(target, last_hops, source)
    if hops is None:
        raise UsageError(f"no way leads from {source} to {target}{why}", "add a link between them to the cluster file")
    return hops


class _Lanes:
    """The lanes met so far, in their order: one for all traffic of a shared link, one for each direction of others."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, ...], Lane] = {}
        self._positions: dict[tuple[str, ...], int] = {}

    def way(self, hops: tuple[Hop, ...]) -> Way:
        return Way(
            lanes=tuple(self._position(hop) for hop in hops),
            latency_seconds=sum(hop.link.latency_seconds for hop in hops),
        )

    def _position(self, hop: Hop) -> int:
        link = hop.link
        ends = link.members if link.shared else (hop.source, hop.target)
        key = (link.kind, "shared" if link.shared else "", *ends)
        if key not in self.found:
            self._positions[key] = len(self.found)
            name = ("=" if link.shared else "->").join(ends)
            self.found[key] = Lane(name=name, bytes_second=link.bandwidth_bytes_second, ends=ends)
        return self._positions[key]

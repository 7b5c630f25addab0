"""Machines and how they are connected: links, nodes, clusters.

A place in a cluster has a name: a node (`box-0`, meaning its processors and memory), a GPU of a node
(`box-0/gpu3`), a switch of a node (`box-0/plx0`), or a switch of the network (`spine`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from tonnage.errors import NotFound
from tonnage.hardware.gpu import Gpu
from tonnage.hardware.routes import Routes, way_to

HOST = "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A connection of two or more places.

    `bandwidth_bytes_second` is that of one direction. Each pair of members has it to itself, as through a
    non-blocking switch, unless the link is `shared`: then all traffic on it divides it. A `one_way` link leads
    from the first member to the second only.
    """

    kind: str
    members: tuple[str, ...]
    bandwidth_bytes_second: int
    latency_seconds: float
    shared: bool = False
    one_way: bool = False

    def leads(self, source: str) -> tuple[str, ...]:
        """The places that this link reaches from `source` directly."""
        if source not in self.members or (self.one_way and source != self.members[0]):
            return ()
        return tuple(member for member in self.members if member != source)

    def seconds(self, message_bytes: int) -> float:
        return self.latency_seconds + message_bytes / self.bandwidth_bytes_second


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One machine. Its links name its own places: `gpu0`, `gpu1`, `host`, and its switches."""

    name: str
    group: str
    cpu_cores: int
    cpu_sockets: int = 1
    memory_bytes: int
    gpus: tuple[Gpu, ...] = ()
    switches: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    engine: str | None = None
    price_usd_hour: float | None = None
    power_watts: float | None = None
    idle_watts: float | None = None
    speed: float = 1.0  # of its devices, times that of the machine where costs were measured
    address: str | None = None  # where it is reached: host, or host and port

    @property
    def gpu_places(self) -> tuple[str, ...]:
        return tuple(f"{self.name}/gpu{index}" for index in range(len(self.gpus)))

    def place(self, local: str) -> str:
        """The name in the cluster of a place in this node."""
        return self.name if local == HOST else f"{self.name}/{local}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Nodes, the switches between them, and every link."""

    name: str
    nodes: tuple[Node, ...]
    switches: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    inputs: str | None = None  # the node where a network's inputs come from
    outputs: str | None = None  # the node where its outputs must end

    def node(self, name: str) -> Node:
        for node in self.nodes:
            if node.name == name:
                return node
        raise NotFound(f"no node {name!r} in cluster {self.name!r}")

    def gpus(self) -> Iterator[tuple[str, Gpu]]:
        """Every GPU with the name of its place."""
        for node in self.nodes:
            yield from zip(node.gpu_places, node.gpus, strict=True)

    def places(self) -> set[str]:
        local = {node.place(name) for node in self.nodes for name in (HOST, *node.switches)}
        return local | {place for place, _ in self.gpus()} | set(self.switches)

    def all_links(self) -> tuple[Link, ...]:
        """The links inside the nodes and between them, all with cluster-wide names."""
        inside = [
            replace(link, members=tuple(node.place(member) for member in link.members))
            for node in self.nodes
            for link in node.links
        ]
        return (*inside, *self.links)

    def path(self, source: str, target: str, message_bytes: int = 2**20) -> tuple[Link, ...]:
        """The links on the quickest way for a message of that size, stored and forwarded at each stop."""
        for place in (source, target):
            if place not in self.places():
                raise NotFound(f"no place {place!r} in cluster {self.name!r}")
        hops = way_to(target, Routes(self.all_links(), message_bytes).last_hops(source), source)
        if hops is None:
            raise NotFound(f"no link leads from {source!r} to {target!r}")
        return tuple(hop.link for hop in hops)

    def bandwidth_bytes_second(self, source: str, target: str) -> int:
        """The narrowest link on the way."""
        return min((link.bandwidth_bytes_second for link in self.path(source, target)), default=0)

    def latency_seconds(self, source: str, target: str) -> float:
        return sum(link.latency_seconds for link in self.path(source, target))

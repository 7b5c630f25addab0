"""Which GPUs work together, and over what: the little that the cost of a collective depends on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tonnage.errors import UsageError
from tonnage.hardware import Cluster, Gpu, Link, Node

NODE_GPUS = 8  # a board of GPUs, as vendors build them


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """What ranks send over: nominal bytes per second of one direction while all of them send, and one message's latency."""

    kind: str
    bytes_second: float
    latency_seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind} of {self.bytes_second / 1e9:.4g} GB/s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Ranks on nodes. `inside` joins the GPUs of a node, `between` the nodes, with the bandwidth of a whole node.

    `has_multicast` says that a switch between the GPUs adds up what they send (NVLink SHARP).
    """

    ranks: int
    nodes: int = 1
    inside: Fabric | None = None
    between: Fabric | None = None
    has_multicast: bool = False
    note: str = ""

    def __post_init__(self) -> None:
        if self.ranks < 1 or not 1 <= self.nodes <= self.ranks:
            raise UsageError(f"{self.ranks} GPUs cannot be spread over {self.nodes} nodes")
        if (self.ranks > self.nodes and self.inside is None) or (self.nodes > 1 and self.between is None):
            raise UsageError(f"nothing connects the {self.ranks} GPUs on {self.nodes} nodes")

    @property
    def ranks_on_node(self) -> int:
        """On the fullest node."""
        return -(-self.ranks // self.nodes)

    def __str__(self) -> str:
        inside = f"{self.ranks} GPUs" + (f" by {self.inside}" if self.inside else "")
        return inside + (f", {self.nodes} nodes by {self.between}" if self.between else "")


# The network that is assumed where only the GPU is known: one port of current InfiniBand for a node, our assumption.
DEFAULT_NETWORK = Fabric(kind="infiniband", bytes_second=400e9 / 8, latency_seconds=2e-6)
# Cards are joined by bridges, which reach few of them (data sheets); boards of eight by a switch or a full mesh.
_BRIDGED = ("PCIe", "NVL", "RTX", "TITAN", "A30", "A40", "MI100", "MI210")
_BRIDGED_GPUS = {"H200 NVL": 4, "MI100": 4, "MI210": 4}


def from_catalogue(gpu: Gpu, count: int, network: Fabric = DEFAULT_NETWORK) -> Topology:
    """`count` GPUs of one kind: up to eight in a node, by their own links where those reach all, else through the host."""
    if count < 1:
        raise UsageError(f"{count} GPUs cannot train anything")
    nodes = -(-count // NODE_GPUS)
    on_node = -(-count // nodes)
    inside = _own_fabric(gpu, on_node) if on_node > 1 else None
    between = replace(network, bytes_second=min(network.bytes_second, on_node * gpu.pcie_bytes_second))
    note = f"{nodes} nodes of {on_node} GPUs by {between}: assumed, describe yours in cluster.yaml" if nodes > 1 else ""
    return Topology(
        ranks=count,
        nodes=nodes,
        inside=inside,
        between=between if nodes > 1 else None,
        has_multicast=nodes == 1 and inside is not None and _switch_adds(gpu, inside),
        note=note,
    )


def _own_fabric(gpu: Gpu, count: int) -> Fabric:
    link = gpu.peer_link
    if link is None or count > _reach(gpu):
        return Fabric(kind="pcie", bytes_second=gpu.pcie_bytes_second)
    one_way = link.bytes_second / 2
    if link.kind == "infinity_fabric":  # a mesh: each pair has its own links, and only those to the chosen GPUs serve
        one_way *= (count - 1) / (_reach(gpu) - 1)
    return Fabric(kind=link.kind, bytes_second=one_way)


def _reach(gpu: Gpu) -> int:
    """How many GPUs the direct links join."""
    bridged = any(word in gpu.name for word in _BRIDGED)
    return _BRIDGED_GPUS.get(gpu.name, 2) if bridged else NODE_GPUS


def _switch_adds(gpu: Gpu, inside: Fabric) -> bool:
    """NVLink SHARP came with the switches of NVLink 4 (NCCL 2.17 release notes)."""
    link = gpu.peer_link
    return inside.kind == "nvlink" and link is not None and link.generation >= 4 and _reach(gpu) == NODE_GPUS


def from_cluster(cluster: Cluster, places: Sequence[str]) -> Topology:
    """The chosen GPUs (`hopper-0/gpu3`) of a cluster, or all GPUs of a node where only the node is named."""
    chosen = _by_node(cluster, places)
    insides = [fabric for node, own in chosen if (fabric := _inside(node, own)) is not None]
    between = _between(cluster, chosen) if len(chosen) > 1 else None
    gpus = [gpu for node, own in chosen for place, gpu in zip(node.gpu_places, node.gpus, strict=True) if place in own]
    slowest = min(insides, key=lambda fabric: fabric.bytes_second, default=None)
    return Topology(
        ranks=len(gpus),
        nodes=len(chosen),
        inside=slowest,
        between=between,
        has_multicast=len(chosen) == 1 and slowest is not None and all(_switch_adds(gpu, slowest) for gpu in gpus),
    )


def _by_node(cluster: Cluster, places: Sequence[str]) -> list[tuple[Node, list[str]]]:
    chosen: dict[str, list[str]] = {}
    for place in places:
        node = cluster.node(place.split("/")[0])
        own = [place] if "/" in place else list(node.gpu_places)
        if not own or own[0] not in node.gpu_places:
            raise UsageError(f"{place!r} is no GPU", f"node {node.name} has {len(node.gpus)}")
        chosen[node.name] = list(dict.fromkeys([*chosen.get(node.name, []), *own]))
    if not chosen:
        raise UsageError("no GPU was chosen")
    return [(cluster.node(name), own) for name, own in chosen.items()]


def _inside(node: Node, places: list[str]) -> Fabric | None:
    """The ring of the chosen GPUs in one node; its slowest hop decides."""
    if len(places) < 2:
        return None
    alone = Cluster(name=node.name, nodes=(node,))
    ring = _short_ring(alone, places)
    return _ring_fabric(alone, ring)


def _between(cluster: Cluster, chosen: list[tuple[Node, list[str]]]) -> Fabric:
    """The ring of nodes. A node sends what its network takes, or less where its GPUs cannot deliver that much."""
    bare = replace(cluster, nodes=tuple(replace(node, links=()) for node in cluster.nodes))
    network = _ring_fabric(bare, [node.name for node, _ in chosen])
    delivered = min(sum(_host_bytes_second(node, place) for place in own) for node, own in chosen)
    return replace(network, bytes_second=min(network.bytes_second, delivered))


def _host_bytes_second(node: Node, place: str) -> int:
    return Cluster(name=node.name, nodes=(node,)).bandwidth_bytes_second(place, node.name)


def _short_ring(cluster: Cluster, places: list[str]) -> list[str]:
    """Always on to the nearest one left: NCCL searches longer, and finds no worse."""
    ring, left = [places[0]], places[1:]
    while left:
        here = ring[-1]
        nearest = max(left, key=lambda place: cluster.bandwidth_bytes_second(here, place))
        ring.append(nearest)
        left.remove(nearest)
    return ring


def _ring_fabric(cluster: Cluster, ring: list[str]) -> Fabric:
    """All hops at once: a link that several of them use in one direction divides its bandwidth, a shared one always."""
    hops = list(pairwise([*ring, ring[0]]))
    paths = [cluster.path(source, target) for source, target in hops]
    load: dict[tuple[Link, str], int] = {}
    for key in _uses(hops, paths):
        load[key] = load.get(key, 0) + 1
    return Fabric(
        kind=_kind(paths),
        bytes_second=min(link.bandwidth_bytes_second / count for (link, _), count in load.items()),
        latency_seconds=max(sum(link.latency_seconds for link in path) for path in paths),
    )


def _uses(hops: list[tuple[str, str]], paths: list[tuple[Link, ...]]) -> Iterable[tuple[Link, str]]:
    """Each use of a link with the place it is entered from; a shared link knows no directions."""
    for (place, target), path in zip(hops, paths, strict=True):
        for link, following in zip(path, [*path[1:], None], strict=True):
            yield link, "" if link.shared else place
            place = target if following is None else next(p for p in link.leads(place) if p in following.members)


def _kind(paths: list[tuple[Link, ...]]) -> str:
    """What the slowest hop goes over, at its narrowest place."""
    slowest = max(paths, key=lambda path: sum(link.seconds(2**20) for link in path))
    return min(slowest, key=lambda link: link.bandwidth_bytes_second).kind

"""What a collective operation costs: n bytes over p ranks, by ring, tree or multicast, whichever is soonest done.

Time is latency plus bytes over bandwidth, as in NCCL's own model. `n` is always the size of the whole: what every rank
holds before an all-reduce, after an all-gather, before a reduce-scatter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil, log2

from tonnage.estimate.communication import NCCL, Algorithm, Library, Protocol
from tonnage.estimate.topology import Fabric, Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One collective. `sent_bytes` is what each rank sends, `latency_seconds` the part that no bandwidth shortens."""

    seconds: float = 0.0
    latency_seconds: float = 0.0
    sent_bytes: float = 0.0
    algorithm: Algorithm = Algorithm.RING
    protocol: str = ""


@dataclass(frozen=True, slots=True)
class _Way:
    """A protocol on a topology."""

    protocol: Protocol
    topology: Topology
    library: Library

    def hops(self, inside: float, between: float) -> float:
        """The latency of so many hops in a row, inside nodes and from node to node."""
        return (
            self.protocol.base_seconds
            + inside * self._hop_seconds(self.topology.inside)
            + between * self._hop_seconds(self.topology.between, is_network=True)
        )

    def _hop_seconds(self, fabric: Fabric | None, *, is_network: bool = False) -> float:
        if fabric is None:
            return 0.0
        known = self.protocol.hop_seconds
        if is_network:  # NCCL adds the network's own latency to its table; inside a node the table has it all
            return known["network"] + fabric.latency_seconds
        return known.get(fabric.kind, known["network"])

    def seconds(self, inside_bytes: float, between_bytes: float) -> float:
        """The time to send so much by each rank inside its node, and by each node: both flow at once."""
        return max(self._send(self.topology.inside, inside_bytes), self._send(self.topology.between, between_bytes))

    def _send(self, fabric: Fabric | None, nbytes: float) -> float:
        if fabric is None:
            return 0.0
        return nbytes / (fabric.bytes_second * self.library.share(fabric.kind) * self.protocol.bandwidth)


def all_reduce(nbytes: float, topology: Topology, library: Library = NCCL) -> Cost:
    """Every rank ends with the sum of all."""
    costs = {Algorithm.RING: _ring_all_reduce, Algorithm.TREE: _tree_all_reduce, Algorithm.MULTICAST: _multicast}
    return _soonest(nbytes, topology, library, costs)


def reduce_scatter(nbytes: float, topology: Topology, library: Library = NCCL) -> Cost:
    """Every rank ends with its share of the sum. NCCL has only rings for it, and a switch gains nothing."""
    return _soonest(nbytes, topology, library, {Algorithm.RING: _ring_once})


def all_gather(nbytes: float, topology: Topology, library: Library = NCCL) -> Cost:
    """Every rank ends with the shares of all; costs what a reduce-scatter costs."""
    return _soonest(nbytes, topology, library, {Algorithm.RING: _ring_once})


def broadcast(nbytes: float, topology: Topology, library: Library = NCCL) -> Cost:
    """Every rank ends with what one rank had, passed on along the ring in chunks."""
    return _soonest(nbytes, topology, library, {Algorithm.RING: _ring_broadcast})


_CostOf = Callable[[float, _Way], Cost]


def _soonest(nbytes: float, topology: Topology, library: Library, costs: Mapping[Algorithm, _CostOf]) -> Cost:
    if topology.ranks == 1 or nbytes <= 0:
        return Cost()
    found = [
        costs[protocol.algorithm](nbytes, _Way(protocol, topology, library))
        for protocol in library.protocols
        if protocol.algorithm in costs and _is_usable(protocol, topology)
    ]
    return min(found, key=lambda cost: cost.seconds)


def _is_usable(protocol: Protocol, topology: Topology) -> bool:
    if protocol.algorithm == Algorithm.MULTICAST and not topology.has_multicast:
        return False
    return not protocol.needs or (topology.inside is not None and topology.inside.kind in protocol.needs)


def _ring_all_reduce(nbytes: float, way: _Way) -> Cost:
    """A reduce-scatter and an all-gather: 2(p-1) steps, in each of which every rank sends n/p."""
    ranks, nodes = way.topology.ranks, way.topology.nodes
    between = 2 * nodes if nodes > 1 else 0  # NCCL counts so many of the steps at the network's latency
    return _cost(way, 2 * (ranks - 1) / ranks * nbytes, 2 * (ranks - 1), between)


def _ring_once(nbytes: float, way: _Way) -> Cost:
    """p-1 steps, in each of which every rank sends n/p."""
    ranks, nodes = way.topology.ranks, way.topology.nodes
    return _cost(way, (ranks - 1) / ranks * nbytes, ranks - 1, nodes - 1)


def _ring_broadcast(nbytes: float, way: _Way) -> Cost:
    """All but the last rank pass everything on."""
    ranks, nodes = way.topology.ranks, way.topology.nodes
    return _cost(way, nbytes, ranks - 1, nodes - 1)


def _cost(way: _Way, sent_bytes: float, steps: int, between: int) -> Cost:
    """A ring: each link on it, inside or between nodes, carries what each rank sends."""
    between = min(between, steps)
    latency = way.hops(steps - between, between)
    seconds = latency + way.seconds(sent_bytes, sent_bytes)
    return _chosen(way, seconds, latency, sent_bytes)


def _tree_all_reduce(nbytes: float, way: _Way) -> Cost:
    """Up and down again. With two trees, each for one half, a rank that is a leaf in one is inside the other.

    A GPU in the chain of its node sends n up and n down. A node sends n/2 up in each tree, and n/2 to two children in
    the tree where it is inside: 2n; two nodes are each other's only child: n.
    """
    ranks, nodes = way.topology.ranks_on_node, way.topology.nodes
    latency = way.hops(2 * (ranks - 1), 2 * ceil(log2(nodes)) if nodes > 1 else 0)
    sent = 2 * nbytes if way.topology.ranks > 2 else nbytes
    inside = nbytes if ranks == 2 and nodes == 1 else 2 * nbytes
    seconds = latency + way.seconds(inside, nbytes if nodes == 2 else 2 * nbytes)
    return _chosen(way, seconds, latency, sent)


def _multicast(nbytes: float, way: _Way) -> Cost:
    """Every rank sends its data once to the switch, which adds them up and returns the sum."""
    latency = way.hops(1, 0)
    return _chosen(way, latency + way.seconds(nbytes, 0.0), latency, nbytes)


def _chosen(way: _Way, seconds: float, latency: float, sent_bytes: float) -> Cost:
    return Cost(
        seconds=seconds,
        latency_seconds=latency,
        sent_bytes=sent_bytes,
        algorithm=way.protocol.algorithm,
        protocol=way.protocol.name,
    )


def bus_bandwidth(nbytes: float, topology: Topology, library: Library = NCCL) -> float:
    """Bytes per second of an all-reduce as nccl-tests counts them: a ring's traffic, whatever the algorithm."""
    seconds = all_reduce(nbytes, topology, library).seconds
    return 2 * (topology.ranks - 1) / topology.ranks * nbytes / seconds if seconds else float("inf")

"""What a cluster has to offer: every node type with each number of its GPUs over each link that joins them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import cast

from tonnage.configure.configuration import Communication
from tonnage.errors import NotFound, UsageError
from tonnage.estimate.topology import Topology, from_cluster
from tonnage.hardware import Cluster, Gpu, Node, pcie_bytes_second

_OWN_LINKS = ("nvlink", "infinity_fabric")
_NO_LINK: Communication = "none"


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """GPUs of one kind in one node, and what joins them. How much of the rest of the node is taken comes later."""

    node: Node = field(repr=False)
    gpu: Gpu | None  # None: the processors alone
    gpu_count: int
    communication: Communication
    host_bytes_second: float = 0.0  # between one GPU and the host while all of them copy
    topology: Topology | None = None

    @property
    def node_type(self) -> str:
        return self.node.group

    @property
    def name(self) -> str:
        if self.gpu is None:
            return f"{self.node_type}: no GPU"
        gpus = self.gpu.name if self.gpu_count == 1 else f"{self.gpu_count} x {self.gpu.name}"
        return f"{self.node_type}: {gpus}, {self.communication}"

    @property
    def cores_each(self) -> int:
        """Cores that each GPU's process can have at most."""
        return max(self.node.cpu_cores // max(self.gpu_count, 1), 1)

    @cached_property
    def pcie(self) -> tuple[int, int] | None:
        """Generation and lanes of the link to the host, where it has the bandwidth of a standard one."""
        if self.gpu is None or (self.communication == "nvlink" and self.gpu_count == 1):
            return None
        # Generation 4 with 8 lanes is as fast as 5 with 4: the GPU's own generation is tried first.
        generations = (self.gpu.pcie_generation, 6, 5, 4, 3, 2, 1)
        links = [(generation, lanes) for generation in generations for lanes in (16, 8, 4, 2, 1)]
        wanted = round(self.host_bytes_second)
        return next((link for link in links if pcie_bytes_second(*link) == wanted), None)


def candidates(cluster: Cluster, most_gpus: int = 1) -> tuple[Candidate, ...]:
    """One for each node type, number of GPUs and communication; equal nodes count once."""
    if most_gpus < 1:
        raise UsageError(f"at most {most_gpus} GPUs is none at all")
    types = {node.group: node for node in reversed(cluster.nodes)}
    ordered = dict.fromkeys(node.group for node in cluster.nodes)
    return tuple(candidate for group in ordered for candidate in _of_node(types[group], most_gpus))


def _of_node(node: Node, most_gpus: int) -> Iterator[Candidate]:
    yield Candidate(node=node, gpu=None, gpu_count=0, communication=_NO_LINK)
    for gpu in dict.fromkeys(node.gpus):
        places = [place for place, own in zip(node.gpu_places, node.gpus, strict=True) if own == gpu]
        yield _single(node, gpu, places[0])
        for count in _counts(min(len(places), most_gpus)):
            yield from _several(node, gpu, places[:count])


def _counts(most: int) -> list[int]:
    """Powers of two, and all there are: what a batch is divided by without a rest."""
    return sorted({*(2**power for power in range(1, 11) if 2**power <= most), *([most] if most > 1 else [])})


def _single(node: Node, gpu: Gpu, place: str) -> Candidate:
    alone = _alone(node)
    kind = _narrowest(alone, place, node.name)
    by_chip = gpu.cpu_link_bytes_second  # processor and GPU in one package, such as Grace Hopper
    rate = by_chip or _host_bytes_second(alone, place, node.name, 1)
    communication: Communication = "nvlink" if by_chip or kind == "nvlink" else "pcie"
    return Candidate(node=node, gpu=gpu, gpu_count=1, communication=communication, host_bytes_second=rate)


def _several(node: Node, gpu: Gpu, places: Sequence[str]) -> Iterator[Candidate]:
    """By the GPUs' own links, where these join all of them, and through the host."""
    only_pcie = replace(node, links=tuple(link for link in node.links if link.kind == "pcie"))
    for part in (node, only_pcie):
        try:
            topology = from_cluster(_alone(part), places)
        except NotFound:  # without their own links nothing joins them
            continue
        kind = topology.inside.kind if topology.inside else ""
        if part is node and kind not in _OWN_LINKS:
            continue  # the same as through the host
        rate = gpu.cpu_link_bytes_second or _host_bytes_second(_alone(part), places[0], node.name, len(places))
        yield Candidate(
            node=node,
            gpu=gpu,
            gpu_count=len(places),
            communication=cast(Communication, kind) if kind in _OWN_LINKS else "pcie",
            host_bytes_second=rate,
            topology=topology,
        )


def _alone(node: Node) -> Cluster:
    return Cluster(name=node.name, nodes=(node,))


def _narrowest(cluster: Cluster, place: str, host: str) -> str:
    return min(cluster.path(place, host), key=lambda link: link.bandwidth_bytes_second).kind


def _host_bytes_second(cluster: Cluster, place: str, host: str, count: int) -> float:
    """GPUs that copy at once divide what is shared on the way."""
    path = cluster.path(place, host)
    return min(link.bandwidth_bytes_second / (count if link.shared else 1) for link in path)

"""What agents say, as runtime statistics."""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.hardware.cluster import Cluster
from tonnage.split.observations import LinkStatistics, PlaceStatistics, Statistics
from tonnage.stages.agent_client import SeenNode
from tonnage.stages.measuring import Seen, spread


def statistics_of(seen: Seen, cluster: Cluster, *, taken_at: float, valid_seconds: float) -> Statistics:
    """Nodes and links that did not answer are lost."""
    places: list[PlaceStatistics] = []
    for name, node in seen.nodes.items():
        places += _places(name, node, len(cluster.node(name).gpus), taken_at, valid_seconds)
    places += [
        PlaceStatistics(place=name, taken_at=taken_at, valid_seconds=valid_seconds, is_lost=True)
        for name in seen.lost_nodes
    ]
    return Statistics(places=tuple(places), links=tuple(_links(seen, taken_at, valid_seconds)))


def _places(name: str, node: SeenNode, gpus: int, taken_at: float, valid_seconds: float) -> Iterator[PlaceStatistics]:
    yield PlaceStatistics(
        place=name,
        taken_at=taken_at,
        valid_seconds=valid_seconds,
        load=node.load,
        available_bytes=node.available_bytes,
        speed=spread(pace.score / node.best_pace.score for pace in node.paces),
    )
    for index, gpu in enumerate(node.gpus[:gpus]):
        yield PlaceStatistics(
            place=f"{name}/gpu{index}",
            taken_at=taken_at,
            valid_seconds=valid_seconds,
            load=gpu.load,
            available_bytes=max(gpu.available_bytes, 0),
        )


def _links(seen: Seen, taken_at: float, valid_seconds: float) -> Iterator[LinkStatistics]:
    for (source, target), link in seen.links.items():
        yield LinkStatistics(
            source=source,
            target=target,
            taken_at=taken_at,
            valid_seconds=valid_seconds,
            bandwidth_bytes_second=link.bandwidth_bytes_second,
            latency_seconds=link.latency_seconds,
        )
    for source, target in seen.lost_links:
        yield LinkStatistics(
            source=source, target=target, taken_at=taken_at, valid_seconds=valid_seconds, is_lost=True
        )  # fmt: skip

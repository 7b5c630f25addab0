"""The fabric of a cluster as it is now: around what is lost, other ways are looked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tonnage.errors import DoesNotFit
from tonnage.hardware.cluster import Cluster, Link
from tonnage.split.devices import Fabric
from tonnage.split.fabric_of import fabric_of
from tonnage.split.observations import LinkStatistics, Statistics, current
from tonnage.split.statistics import fabric_under, refuse_lost_ends, refuse_unknown


def fabric_now(
    cluster: Cluster,
    statistics: Statistics,
    *,
    now: float,
    pessimistic: bool = False,
    ignore_old: Callable[[str], None] | None = None,
    with_hosts: bool = False,
) -> Fabric:
    """As `fabric_under`, with ways that avoid lost nodes and links; raises where two devices have none left.

    Two places that have no link of their own and lost each other somewhere between them have no way any more.
    """
    refuse_unknown(cluster.places(), statistics)
    seen = current(statistics, now=now, told=ignore_old)
    refuse_lost_ends(cluster.inputs, cluster.outputs, {entry.place: entry for entry in seen.places})
    gone = {entry.place for entry in seen.places if entry.is_lost}
    direct = {pair for link in cluster.links if not _is_bus(link) for pair in _pairs(link)}
    cut = {_pair(entry) for entry in seen.links if entry.is_lost} & direct
    rest = _surviving(cluster, gone, cut)
    there = rest.places()
    left = Statistics(
        places=tuple(entry for entry in seen.places if entry.place in there),
        links=tuple(entry for entry in seen.links if _pair(entry) not in cut and set(_pair(entry)) <= there),
    )
    return fabric_under(fabric_of(rest, with_hosts=with_hosts), left, now=now, pessimistic=pessimistic)


def _surviving(cluster: Cluster, gone: set[str], cut: set[tuple[str, str]]) -> Cluster:
    """Without lost nodes, and without the directions of links between nodes that are cut."""
    nodes = tuple(node for node in cluster.nodes if node.name not in gone)
    if not nodes:
        raise DoesNotFit(f"all {len(cluster.nodes)} nodes are lost")
    links = tuple(left for link in cluster.links for left in _surviving_links(link, gone, cut))
    return replace(cluster, nodes=nodes, links=links)


def _surviving_links(link: Link, gone: set[str], cut: set[tuple[str, str]]) -> Iterator[Link]:
    """A link that loses a pair becomes one for each direction of the others."""
    members = tuple(member for member in link.members if member not in gone)
    pairs = [pair for pair in _pairs(link) if set(pair) <= set(members)]
    if pairs and (_is_bus(link) or not cut & set(pairs)):
        yield replace(link, members=members)
        return
    for pair in pairs:
        if pair not in cut:
            yield replace(link, members=pair, one_way=True)


def _is_bus(link: Link) -> bool:
    """On which two cannot lose each other alone."""
    return link.shared and len(link.members) > 2


def _pairs(link: Link) -> list[tuple[str, str]]:
    return [(source, target) for source in link.members for target in link.leads(source)]


def _pair(entry: LinkStatistics) -> tuple[str, str]:
    return entry.source, entry.target

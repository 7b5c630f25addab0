"""Writes what was measured into the content of a cluster file; all other fields stay as they are. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from tonnage.hardware.cluster import Cluster, Link
from tonnage.hardware.cluster_file import groups_of
from tonnage.hardware.cluster_links import network_links, network_members
from tonnage.hardware.cluster_models import ClusterFile
from tonnage.hardware.quantities import format_rate, format_seconds
from tonnage.hardware.routes import Routes, way_to
from tonnage.stages.contention import RECEIVES, SENDS, Together
from tonnage.stages.measuring import Pair, Seen
from tonnage.units import MIB

_NEW_KIND = "ethernet"
_SWITCH = "network"
_HARDLY_FASTER = 1.2


@dataclass(frozen=True, slots=True)
class _Figures:
    """Of one direction of a link."""

    bytes_second: float
    latency_seconds: float


def filled_in(
    content: Mapping[str, Any], cluster: Cluster, seen: Seen, together: Sequence[Together], reference: str
) -> dict[str, Any]:
    """The content of the file with memory, speeds, bandwidths and latencies as measured.

    Speeds are relative to the node `reference`. A file without links gets them: one matrix, or a switch with a link for
    each node where the ways out of nodes or into them are shared.
    """
    file = ClusterFile.model_validate(content)
    filled = dict(content)
    filled["nodes"] = [
        dict(section)
        | _node_fields([n.name for n in cluster.nodes if n.group == section["name"]], cluster, seen, reference)
        for section in content["nodes"]
    ]
    if file.links:
        filled["links"] = _filled_links(content["links"], file, cluster, seen)
    elif any(each.is_contended and each.shared_by in (SENDS, RECEIVES) for each in together):
        switch = _free_name(cluster)
        filled["switches"] = [*content.get("switches", []), switch]
        filled["links"] = _star(seen, together, switch)
    elif seen.links:
        filled["links"] = [_matrix(list(seen.nodes), _measured(seen))]
    return filled


# -- nodes ----------------------------------------------------------------------------------------------------------------


def _node_fields(names: list[str], cluster: Cluster, seen: Seen, reference: str) -> dict[str, Any]:
    """Of equal nodes the least memory and the middle speed; the speed of GPUs is not that of their node's processors."""
    there = [seen.nodes[name] for name in names if name in seen.nodes]
    if not there:
        return {}
    fields: dict[str, Any] = {"memory": f"{min(node.memory_bytes for node in there) // MIB} MiB"}
    if reference in seen.nodes and not cluster.node(names[0]).gpus:
        nominal = seen.nodes[reference].best_pace.score
        fields["speed"] = float(f"{median(node.best_pace.score for node in there) / nominal:.3g}")
    return fields


# -- links that the file has ----------------------------------------------------------------------------------------------


def _filled_links(content: Sequence[Any], file: ClusterFile, cluster: Cluster, seen: Seen) -> list[dict[str, Any]]:
    hops = _hop_figures(cluster, seen)
    groups = groups_of(file, cluster.nodes)
    filled = []
    for index, section in enumerate(file.links):
        links = set(network_links([section], groups))
        members = network_members(section, groups, ("links", index))
        found = {(source, target): each for (link, source, target), each in hops.items() if link in links}
        rest = {key: value for key, value in content[index].items() if not key.startswith(("bandwidth", "latency"))}
        if not found:
            filled.append(dict(content[index]))
        elif section.shared:
            filled.append(rest | _one(found.values()))
        else:
            filled.append(rest | _matrices(members, _stated(links) | found))
    return filled


def _hop_figures(cluster: Cluster, seen: Seen) -> dict[tuple[Link, str, str], _Figures]:
    """A hop is as wide as the best of the ways over it, and takes an equal part of the quickest one's latency."""
    routes, found = Routes(cluster.all_links()), dict[tuple[Link, str, str], _Figures]()
    for source in seen.nodes:
        last_hops = routes.last_hops(source)
        for target in seen.nodes:
            hops = way_to(target, last_hops, source) if (source, target) in seen.links else None
            for hop in hops or ():
                link = seen.links[source, target]
                rate, latency = link.bandwidth_bytes_second.median, link.latency_seconds.median / len(hops or ())
                before = found.get((hop.link, hop.source, hop.target), _Figures(rate, latency))
                best = _Figures(max(before.bytes_second, rate), min(before.latency_seconds, latency))
                found[hop.link, hop.source, hop.target] = best
    return found


def _stated(links: Iterable[Link]) -> dict[Pair, _Figures]:
    return {
        (source, target): _Figures(link.bandwidth_bytes_second, link.latency_seconds)
        for link in links
        for source in link.members
        for target in link.leads(source)
    }


def _one(found: Iterable[_Figures]) -> dict[str, Any]:
    figures = list(found)
    return {
        "bandwidth": format_rate(max(each.bytes_second for each in figures)),
        "latency": format_seconds(median(each.latency_seconds for each in figures)),
    }


# -- links that the file lacks --------------------------------------------------------------------------------------------


def _measured(seen: Seen) -> dict[Pair, _Figures]:
    return {
        pair: _Figures(link.bandwidth_bytes_second.median, link.latency_seconds.median)
        for pair, link in seen.links.items()
    }


def _matrix(members: Sequence[str], figures: Mapping[Pair, _Figures]) -> dict[str, Any]:
    return {"kind": _NEW_KIND, "between": list(members)} | _matrices(members, figures)


def _matrices(members: Sequence[str], figures: Mapping[Pair, _Figures]) -> dict[str, Any]:
    rows = [[figures.get((source, target)) for target in members] for source in members]
    return {
        "bandwidth_matrix": [[each and format_rate(each.bytes_second) for each in row] for row in rows],
        "latency_matrix": [[each and format_seconds(each.latency_seconds) for each in row] for row in rows],
    }


def _star(seen: Seen, together: Sequence[Together], switch: str) -> list[dict[str, Any]]:
    """A link for each node, as wide in each direction as the most that was seen to pass."""
    figures = _measured(seen)
    links = []
    for node in seen.nodes:
        out = [each for (source, _), each in figures.items() if source == node]
        into = [each for (_, target), each in figures.items() if target == node]
        if out and into:
            latency = median(each.latency_seconds for each in (*out, *into)) / 2
            ways = {
                (node, switch): _Figures(_widest(out, together, SENDS, node), latency),
                (switch, node): _Figures(_widest(into, together, RECEIVES, node), latency),
            }
            links.append(_matrix([node, switch], ways))
    return links


def _widest(alone: Iterable[_Figures], together: Iterable[Together], shared_by: str, node: str) -> float:
    """Two at once that are hardly faster than the best one alone are as fast as that: they never overlap entirely."""
    widest = max(each.bytes_second for each in alone)
    for each in together:
        if each.shared_by == shared_by and each.node == node and each.together_bytes_second > _HARDLY_FASTER * widest:
            widest = each.together_bytes_second
    return widest


def _free_name(cluster: Cluster) -> str:
    name = _SWITCH
    while name in cluster.places():
        name += "-1"
    return name

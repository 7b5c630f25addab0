"""From the links that a file states to `Link` values: names checked, bandwidth filled in from the catalogue."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tonnage.hardware.catalogue import nearest
from tonnage.hardware.cluster import HOST, Link
from tonnage.hardware.cluster_models import LinkSection
from tonnage.hardware.gpu import Gpu, pcie_bytes_second
from tonnage.hardware.yaml_errors import Problem
from tonnage.hardware.yaml_lines import Location

# One message, one way, when the file does not say: our estimates of the order of magnitude.
_LATENCY_SECONDS = {"nvlink": 2e-6, "infinity_fabric": 2e-6, "pcie": 2e-6, "infiniband": 2e-6, "roce": 4e-6}
_NETWORK_LATENCY_SECONDS = 20e-6

EntryT = TypeVar("EntryT")
Figures = tuple[int | None, float | None]  # bandwidth and latency of one direction


@dataclass(frozen=True, slots=True)
class Stated:
    """A link section with its place in the file and the members it was found to mean."""

    section: LinkSection
    location: Location
    members: tuple[str, ...]


def node_links(
    sections: Sequence[LinkSection], gpus: Sequence[Gpu], switches: Sequence[str], at: Location
) -> list[Link]:
    """The links inside a node, with PCIe from the catalogue for every GPU that has no link to the host or a switch."""
    names = [f"gpu{index}" for index in range(len(gpus))]
    models = dict(zip(names, gpus, strict=True))
    links: list[Link] = []
    for index, section in enumerate(sections):
        for stated in _node_members(section, names, switches, (*at, "links", index)):
            links += _links(stated, models)
    linked = {member for link in links if link.kind == "pcie" for member in link.members}
    return links + [_own_pcie(name, gpu) for name, gpu in models.items() if name not in linked]


def network_links(sections: Sequence[LinkSection], groups: dict[str, tuple[str, ...]]) -> list[Link]:
    """The links between nodes; `groups` maps every name that may be used to the places it means."""
    links: list[Link] = []
    for index, section in enumerate(sections):
        at: Location = ("links", index)
        links += _links(Stated(section, at, network_members(section, groups, at)), {})
    return links


def network_members(section: LinkSection, groups: dict[str, tuple[str, ...]], at: Location) -> tuple[str, ...]:
    """The nodes and switches that a link between nodes connects, in the order of its matrices."""
    named = ["all"] if section.between is None else section.between
    found = [look_up(name, groups, (*at, "between", place)) for place, name in enumerate(named)]
    return tuple(dict.fromkeys(place for group in found for place in group))


def _node_members(section: LinkSection, gpus: list[str], switches: Sequence[str], at: Location) -> Iterator[Stated]:
    known: dict[str, tuple[str, ...]] = {name: (name,) for name in (*gpus, HOST, *switches)}
    if section.between is not None:
        found = [look_up(name, known, (*at, "between", index)) for index, name in enumerate(section.between)]
        yield Stated(section, at, tuple(member for group in found for member in group))
    elif section.kind != "pcie":
        yield Stated(section, at, tuple(gpus))
    elif section.shared:
        yield Stated(section, at, (*gpus, HOST))
    else:
        yield from (Stated(section, at, (gpu, HOST)) for gpu in gpus)


def look_up(name: str, known: dict[str, tuple[str, ...]], at: Location) -> tuple[str, ...]:
    """The places that a name means; raises `Problem` with the nearest name for one that nothing has."""
    if name in known:
        return known[name]
    meant = nearest(name, known)
    raise Problem(at, f"nothing here is called {name!r}" + (f"; did you mean {meant}?" if meant else ""))


def _links(stated: Stated, models: dict[str, Gpu]) -> list[Link]:
    section, members = stated.section, stated.members
    if len(members) < 2:
        raise Problem(stated.location, "a link needs at least two ends")
    if len(set(members)) < len(members):
        raise Problem((*stated.location, "between"), "an end is named twice")
    if section.bandwidth_matrix is not None or section.latency_matrix is not None:
        return _matrix_links(stated, models)
    bandwidth = section.bandwidth or _known_bandwidth(stated, models)
    return [_link(stated, members, bandwidth, section.latency)]


def _matrix_links(stated: Stated, models: dict[str, Gpu]) -> list[Link]:
    """A link for each pair, or for each direction of it where the two differ."""
    if stated.section.shared and len(stated.members) > 2:
        raise Problem((*stated.location, "shared"), "a matrix is for links that each pair has to itself")
    bandwidths, latencies = _bandwidths(stated, models), _latencies(stated)
    links = []
    for row, source in enumerate(stated.members):
        for column, target in enumerate(stated.members[:row]):
            there = bandwidths[row][column], latencies[row][column]
            back = bandwidths[column][row], latencies[column][row]
            links += _pair_links(stated, (source, target), there, back)
    return links


def _bandwidths(stated: Stated, models: dict[str, Gpu]) -> list[list[int | None]]:
    section, size = stated.section, len(stated.members)
    if section.bandwidth_matrix is None:
        bandwidth = section.bandwidth or _known_bandwidth(stated, models)
        return [[bandwidth] * size for _ in range(size)]
    if section.bandwidth is not None:
        raise Problem((*stated.location, "bandwidth_matrix"), "give either bandwidth or bandwidth_matrix, not both")
    return _checked(section.bandwidth_matrix, size, (*stated.location, "bandwidth_matrix"))


def _latencies(stated: Stated) -> list[list[float | None]]:
    section, size = stated.section, len(stated.members)
    if section.latency_matrix is None:
        return [[section.latency] * size for _ in range(size)]
    if section.latency is not None:
        raise Problem((*stated.location, "latency_matrix"), "give either latency or latency_matrix, not both")
    return _checked(section.latency_matrix, size, (*stated.location, "latency_matrix"))


def _checked(matrix: list[list[EntryT]], size: int, at: Location) -> list[list[EntryT]]:
    if len(matrix) != size or any(len(row) != size for row in matrix):
        raise Problem(at, f"must have {size} rows of {size} entries, one for each end of the link")
    return matrix


def _pair_links(stated: Stated, ends: tuple[str, str], there: Figures, back: Figures) -> list[Link]:
    if there == back:
        return [_link(stated, ends, there[0], there[1])] if there[0] else []
    ways = ((ends, there), (ends[::-1], back))
    return [_link(stated, way, rate, latency, one_way=True) for way, (rate, latency) in ways if rate]


def _link(
    stated: Stated, members: tuple[str, ...], bandwidth: int, latency: float | None, *, one_way: bool = False
) -> Link:
    kind = stated.section.kind
    return Link(
        kind=kind,
        members=members,
        bandwidth_bytes_second=bandwidth,
        latency_seconds=_LATENCY_SECONDS.get(kind, _NETWORK_LATENCY_SECONDS) if latency is None else latency,
        shared=stated.section.shared,
        one_way=one_way,
    )


def _known_bandwidth(stated: Stated, models: dict[str, Gpu]) -> int:
    """What the catalogue knows: the slowest of the GPUs at the ends of the link decides."""
    section = stated.section
    gpus = [models[member] for member in stated.members if member in models]
    if section.kind == "pcie" and (gpus or (section.generation and section.lanes)):
        widths = [(gpu.pcie_generation, gpu.pcie_lanes) for gpu in gpus] or [(6, 16)]
        return min(pcie_bytes_second(section.generation or gen, section.lanes or lanes) for gen, lanes in widths)
    rates = [gpu.peer_link.bytes_second // 2 for gpu in gpus if gpu.peer_link and gpu.peer_link.kind == section.kind]
    if rates and len(rates) == len(gpus):
        return min(rates)
    without = [gpu.name for gpu in gpus if not gpu.peer_link or gpu.peer_link.kind != section.kind]
    if without and section.kind in ("nvlink", "infinity_fabric"):
        raise Problem((*stated.location, "kind"), f"{without[0]} has no {section.kind}; give a bandwidth if it does")
    raise Problem(stated.location, "bandwidth is missing")


def _own_pcie(name: str, gpu: Gpu) -> Link:
    return Link(
        kind="pcie",
        members=(name, HOST),
        bandwidth_bytes_second=gpu.pcie_bytes_second,
        latency_seconds=_LATENCY_SECONDS["pcie"],
    )

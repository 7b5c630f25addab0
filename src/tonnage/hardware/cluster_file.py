"""Reads cluster.yaml into a `Cluster`; every complaint is one sentence with file, line and field."""

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ValidationError

from tonnage.errors import NotFound
from tonnage.hardware.addresses import expand_address, split_address
from tonnage.hardware.catalogue import find_gpu
from tonnage.hardware.cluster import HOST, Cluster, Node
from tonnage.hardware.cluster_links import look_up, network_links, node_links
from tonnage.hardware.cluster_models import ClusterFile, Cpu, GpuGroup, LinkSection, NodeSection
from tonnage.hardware.gpu import Gpu
from tonnage.hardware.yaml_errors import Problem, invalid_file
from tonnage.hardware.yaml_lines import Location, format_location, read_document

_SECTIONS: tuple[type[BaseModel], ...] = (ClusterFile, NodeSection, GpuGroup, Cpu, LinkSection)


def read_cluster(path: str | Path) -> Cluster:
    """The cluster that a file describes; raises `NotFound` or `InvalidFile`."""
    document = read_document(path)
    try:
        return _cluster(ClusterFile.model_validate(document.value))
    except ValidationError as error:
        raise invalid_file(document, error, _SECTIONS) from error
    except Problem as problem:
        raise document.error(problem.location, problem.text) from problem


def _cluster(file: ClusterFile) -> Cluster:
    _refuse_repeated_names(file)
    nodes = tuple(node for index, section in enumerate(file.nodes) for node in _nodes(section, ("nodes", index)))
    groups = groups_of(file, nodes)
    return Cluster(
        name=file.name,
        nodes=nodes,
        switches=tuple(file.switches),
        links=tuple(network_links(file.links, groups)),
        inputs=_one_node(file.inputs, groups, file.switches, "inputs"),
        outputs=_one_node(file.outputs, groups, file.switches, "outputs"),
    )


def _nodes(section: NodeSection, at: Location) -> Iterator[Node]:
    gpus = [
        gpu
        for index, group in enumerate(section.gpus)
        for gpu in [_gpu(group.model, (*at, "gpus", index, "model"))] * group.count
    ]
    links = node_links(section.links, gpus, section.switches, at)
    if section.idle_watts and section.power_watts and section.idle_watts > section.power_watts:
        raise Problem((*at, "idle_watts"), f"is more than power_watts, {section.power_watts:g}")
    for name, address in zip(_names(section), _addresses(section, (*at, "address")), strict=True):
        yield Node(
            name=name,
            group=section.name,
            cpu_cores=section.cpu.cores,
            cpu_sockets=section.cpu.sockets,
            memory_bytes=section.memory,
            gpus=tuple(gpus),
            switches=tuple(section.switches),
            links=tuple(links),
            labels=section.labels,
            engine=section.engine,
            price_usd_hour=section.price_usd_hour,
            power_watts=section.power_watts,
            idle_watts=section.idle_watts,
            speed=section.speed,
            address=address,
        )


def _names(section: NodeSection) -> list[str]:
    if section.count == 1:
        return [section.name]
    return [f"{section.name}-{index}" for index in range(section.count)]


def _addresses(section: NodeSection, at: Location) -> list[str] | list[None]:
    """One for each node, in the order of their names."""
    if section.address is None:
        return [None] * section.count
    try:
        if isinstance(section.address, str):
            found = expand_address(section.address, section.count)
        else:
            found = section.address
        for address in found:
            split_address(address)
    except ValueError as error:
        raise Problem(at, str(error)) from error
    if len(found) != section.count:
        raise Problem(at, f"has {len(found)} addresses for {section.count} nodes")
    return found


def _one_node(name: str | None, groups: dict[str, tuple[str, ...]], switches: list[str], field: str) -> str | None:
    """The node that is meant by `inputs` or `outputs`."""
    if name is None:
        return None
    members = look_up(name, groups, (field,))
    if name in switches:
        raise Problem((field,), f"{name!r} is a switch; name a node")
    if len(members) > 1:
        raise Problem((field,), f"{name!r} stands for {len(members)} nodes; name one, such as {members[0]}")
    return members[0]


def _gpu(model: str, at: Location) -> Gpu:
    try:
        return find_gpu(model)
    except NotFound as error:
        raise Problem(at, f"{error.message}; {error.hint}") from error


def _refuse_repeated_names(file: ClusterFile) -> None:
    seen: dict[str, str] = {"all": "the word for every node", HOST: "the word for a node's processors"}
    for index, section in enumerate(file.nodes):
        for name in {section.name, *_names(section)}:
            _claim(name, ("nodes", index, "name"), seen)
    for index, name in enumerate(file.switches):
        _claim(name, ("switches", index), seen)


def _claim(name: str, at: Location, seen: dict[str, str]) -> None:
    if name in seen:
        raise Problem(at, f"the name {name!r} is taken: {seen[name]}")
    seen[name] = f"{format_location(at)} has it"


def groups_of(file: ClusterFile, nodes: tuple[Node, ...]) -> dict[str, tuple[str, ...]]:
    """Every name that links between nodes may use, with the places that it means."""
    groups: dict[str, tuple[str, ...]] = {"all": tuple(node.name for node in nodes)}
    for node in nodes:
        groups[node.name] = (node.name,)
    for section in file.nodes:
        groups[section.name] = tuple(_names(section))
    return groups | {switch: (switch,) for switch in file.switches}

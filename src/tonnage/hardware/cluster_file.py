"""Reads cluster.yaml into a `Cluster`; every complaint is one sentence with file, line and field."""

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ValidationError

from tonnage.errors import NotFound
from tonnage.hardware.catalogue import find_gpu
from tonnage.hardware.cluster import HOST, Cluster, Node
from tonnage.hardware.cluster_links import network_links, node_links
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
    links = network_links(file.links, _groups(file, nodes))
    return Cluster(name=file.name, nodes=nodes, switches=tuple(file.switches), links=tuple(links))


def _nodes(section: NodeSection, at: Location) -> Iterator[Node]:
    gpus = [
        gpu
        for index, group in enumerate(section.gpus)
        for gpu in [_gpu(group.model, (*at, "gpus", index, "model"))] * group.count
    ]
    links = node_links(section.links, gpus, section.switches, at)
    for name in _names(section):
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
        )


def _names(section: NodeSection) -> list[str]:
    if section.count == 1:
        return [section.name]
    return [f"{section.name}-{index}" for index in range(section.count)]


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


def _groups(file: ClusterFile, nodes: tuple[Node, ...]) -> dict[str, tuple[str, ...]]:
    groups: dict[str, tuple[str, ...]] = {"all": tuple(node.name for node in nodes)}
    for node in nodes:
        groups[node.name] = (node.name,)
    for section in file.nodes:
        groups[section.name] = tuple(_names(section))
    return groups | {switch: (switch,) for switch in file.switches}

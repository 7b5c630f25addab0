"""Reads cluster.yaml into a `Cluster`; every complaint is one sentence with file, line and field."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tonnage.errors import InvalidFile, NotFound
from tonnage.hardware.catalogue import find_gpu, nearest
from tonnage.hardware.cluster import HOST, Cluster, Node
from tonnage.hardware.cluster_links import Problem, network_links, node_links
from tonnage.hardware.cluster_models import ClusterFile, Cpu, GpuGroup, LinkSection, NodeSection
from tonnage.hardware.gpu import Gpu
from tonnage.hardware.yaml_lines import Document, Location, format_location, read_document

_SECTIONS: tuple[type[BaseModel], ...] = (ClusterFile, NodeSection, GpuGroup, Cpu, LinkSection)


def read_cluster(path: str | Path) -> Cluster:
    """The cluster that a file describes; raises `NotFound` or `InvalidFile`."""
    document = read_document(path)
    try:
        return _cluster(ClusterFile.model_validate(document.value))
    except ValidationError as error:
        raise _invalid(document, error) from error
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


def _invalid(document: Document, error: ValidationError) -> InvalidFile:
    """The first problem in the order of the file is the message; the hint names the others."""
    problems = sorted(error.errors(), key=lambda details: document.line(details["loc"]))
    first, others = problems[0], problems[1:]
    fields = ", ".join(f"{format_location(other['loc'])} (line {document.line(other['loc'])})" for other in others[:5])
    hint = f"more to correct: {fields}{', ...' if len(others) > 5 else ''}" if others else ""
    return document.error(first["loc"], _describe(first), hint)


def _describe(details: ErrorDetails) -> str:
    kind, context = details["type"], details.get("ctx", {})
    given = f"{details['input']!r:.40}"
    match kind:
        case "missing":
            return "is missing"
        case "extra_forbidden":
            return _unknown_field(str(details["loc"][-1]))
        case "string_type":
            return f"must be text, not {given}; put it in quotes"
        case "int_type" | "int_from_float":
            return f"must be a whole number, not {given}"
        case "float_type":
            return f"must be a number, not {given}"
        case "bool_type":
            return f"must be true or false, not {given}"
        case "list_type":
            return f"must be a list, not {given}"
        case "model_type" | "dict_type":
            return f"must be a mapping (lines of `name: value`), not {given}"
        case "too_short":
            return "must not be empty"
        case "string_pattern_mismatch":
            return f"must be made of letters, digits, dots, dashes and underscores, not {given}"
        case _:
            return _limit(kind, context, given) or details["msg"]


def _limit(kind: str, context: dict[str, Any], given: str) -> str | None:
    words = {"greater_than_equal": "at least", "greater_than": "more than", "less_than_equal": "at most"}
    limits = [value for key, value in context.items() if key in ("ge", "gt", "le")]
    return f"must be {words[kind]} {limits[0]}, not {given}" if kind in words and limits else None


def _unknown_field(name: str) -> str:
    known = {field for section in _SECTIONS for field in section.model_fields}
    meant = nearest(name, known - {name})
    return "there is no such field here" + (f"; did you mean {meant}?" if meant else "")

"""Networks of the public format: accelerators and CPUs, costs in milliseconds, `maxFPGAs`, `maxCPUs`, `maxSizePerFPGA`.

The rules are those that its publishers solve: a CPU pays for computing alone; an accelerator also for every tensor that it
takes from or gives to host memory, in the same units as computing, one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, isfinite
from pathlib import Path
from typing import Any

from tonnage.errors import InvalidFile
from tonnage.split.checked import checked_network
from tonnage.split.network import Network, Operation
from tonnage.split.sources.content import read_json

ACCELERATOR, CPU = "accelerator", "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicNetwork:
    """A network with the devices that its file states; seconds are the file's milliseconds as they stand there."""

    network: Network
    accelerators: int
    cpus: int
    accelerator_bytes: float


def read_public(path: str | Path) -> PublicNetwork:
    """Read a file, plain or gzip; raises `NotFound` or `InvalidFile`."""
    record = read_json(path)
    if not isinstance(record, dict):
        raise InvalidFile(f"{path} is not a network: it holds a {type(record).__name__}, not an object")
    return public_network(record, Path(path).name)


def public_network(record: Mapping[str, Any], source: str) -> PublicNetwork:
    """What a record of the format says; raises `InvalidFile`."""
    nodes, edges = _rows(record, "nodes", source), _rows(record, "edges", source)
    moved = _transfers(edges, source)
    operations = [_operation(node, moved, source) for node in nodes]
    network = checked_network(
        source,
        operations,
        [(edge["sourceId"], edge["destId"]) for edge in edges],
        is_training=any(operation.is_backward for operation in operations),
        source=source,
    )
    return PublicNetwork(
        network=network,
        accelerators=_count(record, "maxFPGAs", source),
        cpus=_count(record, "maxCPUs", source),
        accelerator_bytes=_number(record, "maxSizePerFPGA", source),
    )


def _operation(node: Mapping[str, Any], moved: Mapping[Any, tuple[float, float]], source: str) -> Operation:
    where = f"node {node.get('id')} of {source}"
    if not isinstance(node.get("id"), str | int):
        raise InvalidFile(f"a node of {source} has no id", "every node needs an id, a number or a name")
    seconds = {CPU: _number(node, "cpuLatency", where)}
    if node.get("supportedOnFpga", True):
        seconds[ACCELERATOR] = _number(node, "fpgaLatency", where)
    nbytes, cost = moved.get(node["id"], (0.0, 0.0))
    return Operation(
        id=node["id"],
        name=str(node.get("name", "")),
        seconds=seconds,
        weight_bytes=ceil(_number(node, "size", where, default=0.0)),
        output_bytes=ceil(nbytes),
        transfer_seconds=cost,
        together=node.get("colorClass"),
        is_backward=bool(node.get("isBackwardNode", False)),
    )


def _transfers(edges: list[dict[str, Any]], source: str) -> dict[Any, tuple[float, float]]:
    """Bytes and time of each node's output: the same on all its edges, and the largest should they differ."""
    found: dict[Any, tuple[float, float]] = {}
    for edge in edges:
        for end in ("sourceId", "destId"):
            if not isinstance(edge.get(end), str | int):
                raise InvalidFile(f"an edge of {source} has no {end}", "every edge needs a sourceId and a destId")
        where = f"edge {edge['sourceId']} to {edge['destId']} of {source}"
        before = found.get(edge["sourceId"], (0.0, 0.0))
        nbytes, cost = _number(edge, "size", where, default=0.0), _number(edge, "cost", where)
        found[edge["sourceId"]] = (max(before[0], nbytes), max(before[1], cost))
    return found


def _rows(record: Mapping[str, Any], name: str, source: str) -> list[dict[str, Any]]:
    rows = record.get(name)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InvalidFile(f"{source} has no list of {name}", "the format is described in docs/reference/networks.md")
    return rows


def _count(record: Mapping[str, Any], name: str, source: str) -> int:
    value = _number(record, name, source)
    if value != int(value):
        raise InvalidFile(f"{source}: {name} is {value:g}, not a whole number")
    return int(value)


def _number(record: Mapping[str, Any], name: str, where: str, default: float | None = None) -> float:
    value = record.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidFile(f"{where}: {name} is {'missing' if value is None else repr(value)}", "it must be a number")
    if not isfinite(value) or value < 0:
        raise InvalidFile(f"{where}: {name} is {value:g}", "it must be a finite number, 0 or more")
    return float(value)

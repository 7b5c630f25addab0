"""Whether a cluster could run a job as it was placed: else Ray would let it wait for ever without a word."""

from __future__ import annotations

from typing import Any

from tonnage.errors import DoesNotFit, NotFound, TonnageError, UsageError
from tonnage.units import format_bytes

Document = dict[str, Any]

LEAST_VERSION = (2, 50)
_SLIVERS = "accelerator_type:"


def check_version(version: tuple[int, int]) -> None:
    """An older Ray takes the labels of places and ignores them: jobs would run on nodes that nobody named."""
    if version < LEAST_VERSION:
        told, least = (".".join(map(str, each)) for each in (version, LEAST_VERSION))
        raise UsageError(f"the cluster has Ray {told}: placements need {least} or newer")


def check_fits(order: Document, nodes: list[Document]) -> None:
    """Against what the nodes have when they are empty; raises `NotFound` or `DoesNotFit`."""
    alive = [node for node in nodes if node["state"] == "ALIVE"]
    for place in order["places"]:
        named = [node for node in alive if not place["node"] or place["node"] in _names(node, order["node_label"])]
        if not named:
            raise _no_such_node(place["node"], alive, order["node_label"])
        if not any(_holds(node, place) for node in named):
            raise _too_large(place, named)


def _names(node: Document, node_label: str) -> list[str]:
    return [(node["labels"] or {}).get(node_label), node["node_name"], node["node_ip"], node["node_id"]]


def _holds(node: Document, place: Document) -> bool:
    labels = node["labels"] or {}
    has_labels = all(labels.get(key) == value for key, value in place["labels"].items())
    return has_labels and all(_has(node, resource) >= amount for resource, amount in place["bundle"].items())


def _has(node: Document, resource: str) -> float:
    return float((node["resources_total"] or {}).get(resource, 0))


def _no_such_node(name: str, alive: list[Document], node_label: str) -> TonnageError:
    known = sorted({next(filter(None, _names(node, node_label))) for node in alive})
    listed = ", ".join(known[:10]) + (", ..." if len(known) > 10 else "")
    return NotFound(
        f"Ray has no node {name!r}" if name else "Ray has no node that is alive",
        f"it has {listed}; nodes get a name by `ray start --labels {node_label}=NAME`" if known else "",
    )


def _too_large(place: Document, nodes: list[Document]) -> TonnageError:
    """Which of the resources, and by how much; or that no node has all of them together."""
    where = f"the node {place['node']}" if place["node"] else "the largest node"
    hint = "a cluster that adds nodes by itself: --option check_nodes=false"
    for resource, amount in place["bundle"].items():
        largest = max(_has(node, resource) for node in nodes)
        if largest < amount and resource.startswith(_SLIVERS):
            where = where if place["node"] else "no node"
            verb = "has no" if place["node"] else "has a"
            return DoesNotFit(f"{where} {verb} GPU {resource.removeprefix(_SLIVERS)}", hint)
        if largest < amount:
            shown = [format_bytes(int(value)) if resource == "memory" else f"{value:g}" for value in (amount, largest)]
            return DoesNotFit(f"{shown[0]} of {resource} are wanted, {where} has {shown[1]}", hint)
    return DoesNotFit("no node has enough of everything that is wanted", "`ray status` shows what they have")

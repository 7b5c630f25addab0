"""What `tonnage cluster measure` shows: a table for people, plain data for programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from tonnage.hardware.quantities import format_rate, format_seconds
from tonnage.stages.contention import Together
from tonnage.stages.measuring import Seen
from tonnage.units import format_bytes


def measured_record(seen: Seen, together: Sequence[Together], reference: str) -> dict[str, Any]:
    """What was measured as plain data."""
    return {
        "nodes": {name: asdict(node) | {"speed": _speed(seen, name, reference)} for name, node in seen.nodes.items()},
        "links": [{"from": a, "to": b} | asdict(link) for (a, b), link in seen.links.items()],
        "together": [asdict(each) | {"is_contended": each.is_contended} for each in together],
        "failures": seen.failures,
    }


def _speed(seen: Seen, name: str, reference: str) -> float | None:
    if reference not in seen.nodes:
        return None
    return seen.nodes[name].best_pace.score / seen.nodes[reference].best_pace.score


def print_measured(seen: Seen, together: Sequence[Together], reference: str) -> None:
    """Nodes, links, and what is shared."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    if seen.nodes:
        console.print(_nodes(seen, reference))
    if seen.links:
        console.print(_links(seen))
    for each in together:
        if each.is_contended:
            console.print(each.sentence)


def _nodes(seen: Seen, reference: str) -> Table:
    table = Table("node", "cores", "memory", "free", "load", "speed", "GPUs", box=SIMPLE_HEAD, pad_edge=False)
    for name, node in seen.nodes.items():
        speed = _speed(seen, name, reference)
        gpus = ", ".join(gpu.name for gpu in node.gpus) or "none"
        sizes = format_bytes(node.memory_bytes), format_bytes(node.available_bytes)
        table.add_row(name, str(node.cores), *sizes, f"{node.load:.0%}", f"{speed:.2f}" if speed else "-", gpus)
    return table


def _links(seen: Seen) -> Table:
    table = Table("link", "bandwidth", "p95", "latency", "p95", box=SIMPLE_HEAD, pad_edge=False)
    for (source, target), link in seen.links.items():
        rates, delays = link.bandwidth_bytes_second, link.latency_seconds
        table.add_row(
            f"{source}->{target}", format_rate(rates.median), format_rate(rates.p95),
            format_seconds(delays.median), format_seconds(delays.p95),
        )  # fmt: skip
    return table

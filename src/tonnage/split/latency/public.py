"""The latency problem of a network of the public format, and its answers by ids and names of devices."""

from __future__ import annotations

from math import inf

from tonnage.split.latency.problem import LatencyProblem
from tonnage.split.public_format import ACCELERATOR, CPU, PublicNetwork


def latency_problem(public: PublicNetwork) -> LatencyProblem:
    """Nodes in the order of the network's operations. One without a class is a class of its own."""
    operations = public.network.operations
    names = [
        (position, None) if each.together is None else (-1, each.together) for position, each in enumerate(operations)
    ]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return LatencyProblem(
        accelerator_seconds=tuple(each.seconds.get(ACCELERATOR, inf) for each in operations),
        cpu_seconds=tuple(each.seconds[CPU] for each in operations),
        size_bytes=tuple(float(each.weight_bytes) for each in operations),
        transfer_seconds=tuple(each.transfer_seconds or 0.0 for each in operations),
        edges=public.network.edges,
        classes=tuple(numbers[name] for name in names),
        accelerators=public.accelerators,
        memory_bytes=public.accelerator_bytes,
    )

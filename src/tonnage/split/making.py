"""Problems for the solvers, made from networks and devices."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from tonnage.split.grouping import Grouping, group
from tonnage.split.network import Network
from tonnage.split.problem import DeviceClass, Floats, Net, Problem
from tonnage.split.public_format import ACCELERATOR, CPU, PublicNetwork


def public_problem(public: PublicNetwork, *, contiguous: bool = True) -> Problem:
    """The throughput problem as the public format's rules state it."""
    network = public.network
    grouping = group(network, contiguous=contiguous)
    accelerators = DeviceClass(
        name=ACCELERATOR,
        devices=tuple(f"{ACCELERATOR}{index}" for index in range(public.accelerators)),
        seconds=_seconds(network, grouping, ACCELERATOR),
        seconds_per_unit=1.0,
        seconds_per_unit_out=1.0,
        memory_bytes=public.accelerator_bytes,
    )
    cpus = DeviceClass(
        name=CPU,
        devices=tuple(f"{CPU}{index}" for index in range(public.cpus)),
        seconds=_seconds(network, grouping, CPU),
        seconds_per_unit=0.0,
        seconds_per_unit_out=0.0,
    )
    return Problem(
        members=grouping.members,
        followers=grouping.followers,
        nets=nets_of(network, grouping, [operation.transfer_seconds or 0.0 for operation in network.operations]),
        memory_bytes=sums_of(grouping, [operation.weight_bytes for operation in network.operations]),
        classes=tuple(each for each in (accelerators, cpus) if each.count),
    )


def nets_of(network: Network, grouping: Grouping, weights: Sequence[float]) -> tuple[Net, ...]:
    """The tensors that can be cut, those over the same groups added up."""
    found: dict[tuple[int, ...], list[float]] = {}
    for producer, consumers in enumerate(network.consumers):
        members = {grouping.group_of[each] for each in (producer, *consumers)}
        if len(members) > 1 and weights[producer] > 0:
            sums = found.setdefault(tuple(sorted(members)), [0.0, 0.0])
            sums[network.operations[producer].is_backward] += weights[producer]
    return tuple(Net(members=members, weight=there, back=back) for members, (there, back) in found.items())


def _seconds(network: Network, grouping: Grouping, kind: str) -> Floats:
    return sums_of(grouping, [operation.seconds.get(kind, inf) for operation in network.operations])


def sums_of(grouping: Grouping, values: Sequence[float]) -> Floats:
    return np.array([sum(values[position] for position in members) for members in grouping.members], dtype=np.float64)

"""Recomputes the value of a distribution of a public network from the assignment alone, and what it must keep to.

Shares nothing with the solvers: it goes back to the operations and edges of the network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tonnage.split.network import Network
from tonnage.split.public_format import ACCELERATOR, PublicNetwork

Assignment = Mapping[str | int, str]


@dataclass(frozen=True, slots=True)
class Checked:
    """The largest load, and a sentence for every rule that is broken."""

    value: float
    faults: tuple[str, ...]


def check_public(public: PublicNetwork, assignment: Assignment, *, contiguous: bool) -> Checked:
    """Loads by the rules of the public format."""
    network = public.network
    missing = [operation.id for operation in network.operations if operation.id not in assignment]
    if missing:
        return Checked(0.0, tuple(f"operation {each} is on no device" for each in missing))
    faults = [*_devices(public, assignment), *_classes(network, assignment), *_memory(public, assignment)]
    if contiguous:
        faults += _circles(network, assignment)
    loads = {device: _load(network, assignment, device) for device in set(assignment.values())}
    return Checked(max(loads.values()), tuple(faults))


def _is_accelerator(device: str) -> bool:
    return device.startswith(ACCELERATOR)


def _load(network: Network, assignment: Assignment, device: str) -> float:
    inside = [assignment[operation.id] == device for operation in network.operations]
    kind = ACCELERATOR if _is_accelerator(device) else "cpu"
    load = sum(
        operation.seconds.get(kind, float("inf"))
        for operation, here in zip(network.operations, inside, strict=True)
        if here
    )
    if not _is_accelerator(device):
        return load
    readers: dict[int, list[int]] = {}
    for source, target in network.edges:
        readers.setdefault(source, []).append(target)
    for producer, consumers in readers.items():
        members = [inside[each] for each in (producer, *consumers)]
        if any(members) and not all(members):
            load += network.operations[producer].transfer_seconds or 0.0
    return load


def _devices(public: PublicNetwork, assignment: Assignment) -> list[str]:
    used = set(assignment.values())
    accelerators = {device for device in used if _is_accelerator(device)}
    faults = []
    if len(accelerators) > public.accelerators:
        faults.append(f"{len(accelerators)} accelerators are used, there are {public.accelerators}")
    if len(used - accelerators) > public.cpus:
        faults.append(f"{len(used - accelerators)} CPUs are used, there are {public.cpus}")
    return faults


def _classes(network: Network, assignment: Assignment) -> list[str]:
    devices: dict[str | int, set[str]] = {}
    for operation in network.operations:
        if operation.together is not None:
            devices.setdefault(operation.together, set()).add(assignment[operation.id])
    return [f"class {name} is on {', '.join(sorted(found))}" for name, found in devices.items() if len(found) > 1]


def _memory(public: PublicNetwork, assignment: Assignment) -> list[str]:
    held: dict[str, int] = {}
    for operation in public.network.operations:
        device = assignment[operation.id]
        held[device] = held.get(device, 0) + operation.weight_bytes
    return [
        f"{device} holds {nbytes:,} bytes, it has {public.accelerator_bytes:,.0f}"
        for device, nbytes in held.items()
        if _is_accelerator(device) and nbytes > public.accelerator_bytes
    ]


def _circles(network: Network, assignment: Assignment) -> list[str]:
    """Contiguous subnetworks can be done one after the other. Backward operations follow their classes; classes that have
    nothing else stand as their edges among each other say, turned round."""
    forward = {each.together for each in network.operations if not each.is_backward}
    before: dict[str, set[str]] = {device: set() for device in set(assignment.values())}
    for source, target in network.edges:
        first, second = network.operations[source], network.operations[target]
        pair = (assignment[first.id], assignment[second.id])
        if first.is_backward and second.is_backward:
            if first.together in forward and second.together in forward:
                continue
            pair = pair[::-1]
        elif first.is_backward or second.is_backward:
            continue
        if pair[0] != pair[1]:
            before[pair[1]].add(pair[0])
    while True:
        ready = [device for device, waits in before.items() if not waits]
        if not ready:
            break
        for device in ready:
            del before[device]
        for waits in before.values():
            waits.difference_update(ready)
    return [f"{', '.join(sorted(before))} wait for each other in a circle"] if before else []

"""The throughput problem of a network on a fabric, as the solvers see it: every device by itself, at its best.

A device is taken to move data as fast as all its ways allow together, wherever the other end is, and the gradient of a
tensor to come back once however many read it. Both only flatter, so that a bound found here holds on the fabric as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from tonnage.errors import UsageError
from tonnage.hardware.catalogue import nearest
from tonnage.split.checked import label
from tonnage.split.devices import Device, Fabric
from tonnage.split.grouping import Grouping, group
from tonnage.split.making import nets_of, sums_of
from tonnage.split.metrics import seconds_on
from tonnage.split.network import Network, Operation
from tonnage.split.problem import DeviceClass, Floats, Net, Problem

_NO_WAY = 1e15  # seconds a byte: more than anyone waits, and still a number


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """How a network is trained over stages: micro-batches of a step, and whether forward is done again for backward."""

    micro_batches: int = 8
    recompute: bool = False


def cluster_problem(
    network: Network, fabric: Fabric, *, training: Training | None = None, contiguous: bool = True
) -> Problem:
    """Devices that differ in nothing that matters here become one class."""
    _refuse_unknown_pins(network, fabric)
    grouping = group(network, contiguous=contiguous)
    recompute = training is not None and training.recompute
    classes: dict[object, list[int]] = {}
    pins = {operation.pinned for operation in network.operations}
    for place, device in enumerate(fabric.devices):
        pinned = tuple(name for name in (device.name, device.node) if name in pins)
        alike = (device.kind, device.speed, device.memory_bytes, best_rates(fabric, place), pinned)
        classes.setdefault((*alike, device.active_watts, device.idle_watts), []).append(place)
    weights = [float(operation.output_bytes) for operation in network.operations]
    nets = nets_of(network, grouping, weights)
    if network.is_training:
        nets = tuple(Net(members=net.members, weight=net.weight, back=net.weight) for net in nets)
    reserve = 0 if network.is_training else peak_activation_bytes(network)
    return Problem(
        members=grouping.members,
        followers=grouping.followers,
        nets=nets,
        memory_bytes=sums_of(grouping, [_held_bytes(each, recompute) for each in network.operations]),
        stash_bytes=_stash(network, grouping, recompute),
        sync_bytes=_sync(network, grouping, training),
        unshared=_unshared(network, grouping),
        classes=tuple(_class(network, fabric, grouping, places, recompute, reserve) for places in classes.values()),
        overlaps=True,
        passes_on=True,
        keeps_inputs=recompute,
    )


def _refuse_unknown_pins(network: Network, fabric: Fabric) -> None:
    """Operations that must run where nothing is."""
    known = {name for device in fabric.devices for name in (device.name, device.node)}
    for operation in network.operations:
        if operation.pinned and operation.pinned not in known:
            meant = nearest(operation.pinned, known)
            raise UsageError(
                f"operation {label(operation)} is pinned to {operation.pinned!r}, which is not in the cluster",
                f"did you mean {meant}?" if meant else f"for example {fabric.devices[0].name}",
            )


def _held_bytes(operation: Operation, recompute: bool) -> float:
    """Recomputing needs the stash of one micro-batch, whichever it is."""
    return float(operation.weight_bytes + operation.state_bytes + (operation.stash_bytes if recompute else 0))


def best_rates(fabric: Fabric, place: int) -> tuple[float, float]:
    """Bytes a second that a device can receive and send, over all its ways at once."""
    sent = [way.lanes for (source, _), way in fabric.ways.items() if source == place]
    received = [way.lanes[::-1] for (_, target), way in fabric.ways.items() if target == place]
    return _rate(fabric, received), _rate(fabric, sent)


def _rate(fabric: Fabric, ways: Sequence[tuple[int, ...]]) -> float:
    """What the first lanes of all ways carry together, each no more than all ways behind it, and no more than any lane that
    all of them take."""
    if not ways:
        return 0.0
    firsts: dict[int, float] = {}
    for lanes in ways:
        if not lanes:
            return inf
        narrowest = min(fabric.lanes[lane].bytes_second for lane in lanes)
        firsts[lanes[0]] = min(firsts.get(lanes[0], 0.0) + narrowest, fabric.lanes[lanes[0]].bytes_second)
    common = set(ways[0]).intersection(*ways[1:])
    return min([sum(firsts.values()), *(fabric.lanes[lane].bytes_second for lane in common)])


def peak_activation_bytes(network: Network) -> int:
    """The most that outputs take at a time when one device runs everything: no stage needs more."""
    last_use = list(range(len(network.operations)))
    for producer, consumer in network.edges:
        last_use[producer] = max(last_use[producer], consumer)
    freed: dict[int, int] = {}
    held = peak = 0
    for position, operation in enumerate(network.operations):
        held += operation.output_bytes
        peak = max(peak, held)
        freed[last_use[position]] = freed.get(last_use[position], 0) + operation.output_bytes
        held -= freed.pop(position, 0)
    return peak


def _class(
    network: Network, fabric: Fabric, grouping: Grouping, places: Sequence[int], recompute: bool, reserve: int
) -> DeviceClass:
    device = fabric.devices[places[0]]
    received, sent = best_rates(fabric, places[0])
    return DeviceClass(
        name=device.node if len(places) == 1 else f"{device.kind} x {device.speed:g}",
        devices=tuple(fabric.devices[place].name for place in places),
        seconds=_seconds(network, grouping, device, recompute),
        seconds_per_unit=1 / received if received > 0 else _NO_WAY,
        seconds_per_unit_out=1 / sent if sent > 0 else _NO_WAY,
        memory_bytes=max(device.memory_bytes - reserve, 0),
    )


def _seconds(network: Network, grouping: Grouping, device: Device, recompute: bool) -> Floats:
    values = []
    for operation in network.operations:
        seconds = seconds_on(operation, device)
        if network.is_training:
            seconds = seconds * (2 if recompute else 1) + seconds_on(operation, device, backward=True)
        is_elsewhere = operation.pinned and operation.pinned not in (device.name, device.node)
        values.append(inf if is_elsewhere else seconds)
    return sums_of(grouping, values)


def _stash(network: Network, grouping: Grouping, recompute: bool) -> Floats:
    if not network.is_training or recompute:
        return np.zeros(0)
    return sums_of(grouping, [float(operation.stash_bytes) for operation in network.operations])


def _sync(network: Network, grouping: Grouping, training: Training | None) -> Floats:
    """Gradients that replicas of a group exchange, once a step."""
    if not network.is_training or training is None:
        return np.zeros(0)
    gradients = [min(each.weight_bytes, each.state_bytes) for each in network.operations]
    return sums_of(grouping, [nbytes / training.micro_batches for nbytes in gradients])


def _unshared(network: Network, grouping: Grouping) -> Floats:
    if not any(operation.changes_weights for operation in network.operations):
        return np.zeros(0)
    return sums_of(grouping, [float(operation.changes_weights) for operation in network.operations])

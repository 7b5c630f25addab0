"""Stages along a given order of devices, with the links between neighbours as they are.

Where links differ much, as between GPUs of one machine and of two, the order decides what a cut may cost. Every open
tensor is taken to pass from each device to the next, which is true of most; metrics are computed from the fabric. Inputs
come to the device that reads them first, and outputs leave the device that makes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from tonnage.split.chains import Chain, Stage
from tonnage.split.devices import NO_WAY, Fabric, Way
from tonnage.split.family import Family
from tonnage.split.network import Network
from tonnage.split.problem import Floats


@dataclass(frozen=True, slots=True, eq=False)
class EndBytes:
    """By set: inputs that it reads, those of them that others read as well, and outputs that it makes."""

    read: Floats
    shared: Floats
    made: Floats


def end_bytes(family: Family, network: Network, fabric: Fabric) -> EndBytes:
    """All 0 where nobody says where inputs come from or outputs go."""
    bit = {position: 1 << group for group, own in enumerate(family.problem.members) for position in own}
    sets = [family.mask(position) for position in range(family.size)]
    read, shared, made = np.zeros(len(sets)), np.zeros(len(sets)), np.zeros(len(sets))
    for each in network.inputs if fabric.inputs is not None else ():
        groups = _united(bit[reader] for reader in each.readers)
        read += [each.nbytes if groups & own else 0 for own in sets]
        shared += [each.nbytes if groups & own and groups & ~own else 0 for own in sets]
    for output in network.outputs if fabric.outputs is not None else ():
        nbytes = network.operations[output].output_bytes
        made += [nbytes if bit[output] & own else 0 for own in sets]
    return EndBytes(read, shared, made)


def _united(masks: Iterable[int]) -> int:
    union = 0
    for mask in masks:
        union |= mask
    return union


def best_along(
    family: Family, fabric: Fabric, sequence: Sequence[int], ends: EndBytes, *, cap: float = inf, adds: bool = False
) -> Chain | None:
    """The chain with the least largest load (or, if it `adds`, sum of them) whose stages are on these devices (positions
    in the fabric), in this order; devices at the end may stay unused."""
    classes = _classes(family, fabric)
    value = np.full(family.size, inf)
    value[0] = 0.0
    came_from: list[np.ndarray[tuple[int, ...], np.dtype[np.int32]]] = []
    for number, device in enumerate(sequence):
        loads = _loads(family, fabric, classes[device], device, ends)
        value, parents = _step(family, classes[device], loads, value, cap, adds)
        if number + 1 < len(sequence):
            passing = _passing(family, fabric, device, sequence[number + 1], ends)
            passing[-1] = 0.0  # nothing is open when all is done
            value = value + passing if adds else np.maximum(value, passing)
            value = np.where(value <= cap, value, inf)
        came_from.append(parents)
    return _chain(family, [classes[device] for device in sequence], value, came_from)


def _classes(family: Family, fabric: Fabric) -> dict[int, int]:
    position = {device.name: place for place, device in enumerate(fabric.devices)}
    return {position[name]: index for index, each in enumerate(family.problem.classes) for name in each.devices}


def _loads(family: Family, fabric: Fabric, device_class: int, device: int, ends: EndBytes) -> Floats:
    """By kind of load and set: the device's computing, and the lanes of its ends."""
    loads = [family.seconds[device_class]]
    if fabric.inputs is not None:
        loads.append(ends.read / _rate(fabric, fabric.inputs.ways.get(device, NO_WAY)))
    if fabric.outputs is not None:
        loads.append(ends.made / _rate(fabric, fabric.outputs.ways.get(device, NO_WAY)))
    return np.stack(loads)


def _rate(fabric: Fabric, way: Way) -> float:
    return 1e-9 if way == NO_WAY else fabric.bytes_second(way)  # bytes a second: never


def _step(
    family: Family, device_class: int, loads: Floats, value: Floats, cap: float, adds: bool
) -> tuple[Floats, np.ndarray[tuple[int, ...], np.dtype[np.int32]]]:
    """The device takes what each set has more than one before it, or nothing."""
    impossible = family.impossible[device_class]
    limit = family.problem.classes[device_class].memory_bytes
    found = value.copy()
    parents = np.where(np.isfinite(value), np.arange(family.size), -1).astype(np.int32)
    for position in np.flatnonzero(np.isfinite(value)):
        later = slice(int(position) + 1, None)
        more = loads[:, later] - loads[:, position, None]
        load = more.sum(axis=0) + value[position] if adds else np.maximum(more.max(axis=0), value[position])
        worth = (load < found[later]) & (load <= cap) & (impossible[later] == impossible[position])
        worth &= family.memory_bytes[later] - family.memory_bytes[position] <= limit
        sets = int(position) + 1 + np.flatnonzero(worth)
        if len(sets):
            sets = sets[family.contain_at(int(position), sets)]
            found[sets] = load[sets - int(position) - 1]
            parents[sets] = position
    return found, parents


def _passing(family: Family, fabric: Fabric, source: int, target: int, ends: EndBytes) -> Floats:
    there, back = (_rate(fabric, fabric.ways.get(pair, NO_WAY)) for pair in ((source, target), (target, source)))
    return np.asarray(np.maximum((family.open_weight[0] + ends.shared) / there, family.open_weight[1] / back))


def _chain(
    family: Family,
    classes: Sequence[int],
    value: Floats,
    came_from: Sequence[np.ndarray[tuple[int, ...], np.dtype[np.int32]]],
) -> Chain | None:
    if not np.isfinite(value[-1]):
        return None
    position = family.size - 1
    stages: list[Stage] = []
    for device_class, parents in zip(reversed(classes), reversed(came_from), strict=True):
        before = int(parents[position])
        stages.append(Stage(family.mask(position) & ~family.mask(before), device_class))
        position = before
    return Chain(float(value[-1]), tuple(reversed(stages)))

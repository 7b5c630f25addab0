"""Stages along a given order of devices, with the links between neighbours as they are.

Where links differ much, as between GPUs of one machine and of two, the order decides what a cut may cost. Every open
tensor is taken to pass from each device to the next, which is true of most; metrics are computed from the fabric.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from tonnage.split.chains import Chain, Stage
from tonnage.split.devices import Fabric
from tonnage.split.family import Family
from tonnage.split.problem import Floats


def best_along(family: Family, fabric: Fabric, sequence: Sequence[int], cap: float = inf) -> Chain | None:
    """The chain with the least largest load whose stages are on these devices (positions in the fabric), in this order;
    devices at the end may stay unused."""
    classes = _classes(family, fabric)
    value = np.full(family.size, inf)
    value[0] = 0.0
    came_from: list[np.ndarray[tuple[int, ...], np.dtype[np.int32]]] = []
    for number, device in enumerate(sequence):
        value, parents = _step(family, classes[device], value, cap)
        if number + 1 < len(sequence):
            passing = _passing(family, fabric, device, sequence[number + 1])
            passing[-1] = 0.0  # nothing is open when all is done
            value = np.where(passing <= cap, np.maximum(value, passing), inf)
        came_from.append(parents)
    return _chain(family, [classes[device] for device in sequence], value, came_from)


def _classes(family: Family, fabric: Fabric) -> dict[int, int]:
    position = {device.name: place for place, device in enumerate(fabric.devices)}
    return {position[name]: index for index, each in enumerate(family.problem.classes) for name in each.devices}


def _step(
    family: Family, device_class: int, value: Floats, cap: float
) -> tuple[Floats, np.ndarray[tuple[int, ...], np.dtype[np.int32]]]:
    """The device takes what each set has more than one before it, or nothing."""
    seconds, impossible = family.seconds[device_class], family.impossible[device_class]
    limit = family.problem.classes[device_class].memory_bytes
    found = value.copy()
    parents = np.where(np.isfinite(value), np.arange(family.size), -1).astype(np.int32)
    for position in np.flatnonzero(np.isfinite(value)):
        later = slice(int(position) + 1, None)
        load = np.maximum(seconds[later] - seconds[position], value[position])
        worth = (load < found[later]) & (load <= cap) & (impossible[later] == impossible[position])
        worth &= family.memory_bytes[later] - family.memory_bytes[position] <= limit
        sets = int(position) + 1 + np.flatnonzero(worth)
        if len(sets):
            sets = sets[family.contain_at(int(position), sets)]
            found[sets] = load[sets - int(position) - 1]
            parents[sets] = position
    return found, parents


def _passing(family: Family, fabric: Fabric, source: int, target: int) -> Floats:
    there, back = (
        min((fabric.lanes[lane].bytes_second for lane in fabric.ways[pair].lanes), default=inf)
        if pair in fabric.ways
        else 1e-9  # bytes a second: never
        for pair in ((source, target), (target, source))
    )
    return np.asarray(np.maximum(family.open_weight[0] / there, family.open_weight[1] / back))


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

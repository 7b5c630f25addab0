"""A bound on the latency of one sample: every way through the network by itself, on the devices that are best for it.

On such a way an operation begins when what it reads has come, from wherever that is best made, and no device is ever busy
with anything else. Each of these flatters, so no distribution is done sooner.
"""

from __future__ import annotations

from math import inf

import numpy as np

from tonnage.split.devices import HERE, NO_WAY, Fabric
from tonnage.split.ends import way_out
from tonnage.split.metrics import seconds_on
from tonnage.split.network import Input, Network, Operation
from tonnage.split.problem import Floats


def critical_seconds(network: Network, fabric: Fabric, *, recompute: bool = False) -> float:
    """The least latency that any distribution can have, or less; as the metrics count it in training."""
    moving, consumers = _Moving(fabric, trips=2 if network.is_training else 1), network.consumers
    ready = np.zeros(
        (len(network.operations), len(fabric.devices))
    )  # when its inputs are there, by operation and device
    for each in network.inputs:
        if each.nbytes:
            arrival = _arrival(each, fabric)
            for reader in each.readers:
                np.maximum(ready[reader], arrival, out=ready[reader])
    end = 0.0
    for position, operation in enumerate(network.operations):
        done = ready[position] + _seconds(operation, network, fabric, recompute)
        out = _departure(operation, fabric) if position in network.outputs else 0.0
        end = max(end, float((done + out).min()))
        readers = consumers[position]
        if readers:
            there = (done[:, None] + moving.seconds(operation.output_bytes, is_passed_on=len(readers) > 1)).min(axis=0)
            for reader in readers:
                np.maximum(ready[reader], there, out=ready[reader])
    return end


def _seconds(operation: Operation, network: Network, fabric: Fabric, recompute: bool) -> Floats:
    """By device."""
    found = np.full(len(fabric.devices), inf)
    for place, device in enumerate(fabric.devices):
        if operation.pinned in ("", device.name, device.node):
            found[place] = seconds_on(operation, device)
            if network.is_training:
                again = 2 if recompute else 1
                found[place] = again * found[place] + seconds_on(operation, device, backward=True)
    return found


class _Moving:
    """Seconds of a tensor from each device to each, there and back in training."""

    def __init__(self, fabric: Fabric, trips: int) -> None:
        count = len(fabric.devices)
        self._latency, self._per_byte = np.full((count, count), inf), np.zeros((count, count))
        for pair, way in fabric.ways.items():
            self._latency[pair], self._per_byte[pair] = trips * way.latency_seconds, trips / fabric.bytes_second(way)
        self._stay = np.eye(count, dtype=np.bool_)

    def seconds(self, nbytes: int, *, is_passed_on: bool) -> Floats:
        """One that is passed on takes any ways, but one of them leaves its maker and one comes to its reader."""
        straight = self._latency + nbytes * self._per_byte
        if is_passed_on:
            straight = np.maximum(straight.min(axis=1)[:, None], straight.min(axis=0)[None, :])
        return np.where(self._stay, 0.0, straight)


def _arrival(entry: Input, fabric: Fabric) -> Floats:
    """Of an input at each device; it may come from another that got it first."""
    found = np.zeros(len(fabric.devices))
    if fabric.inputs is None:
        return found
    for place in range(len(found)):
        found[place] = fabric.way_seconds(fabric.inputs.ways.get(place, NO_WAY), entry.nbytes)
    away = [place for place in range(len(found)) if fabric.inputs.ways.get(place) != HERE]
    if len(entry.readers) > 1 and away:
        found[away] = found[away].min()
    return found


def _departure(operation: Operation, fabric: Fabric) -> Floats:
    nbytes = operation.output_bytes
    ways = [way_out(fabric, place) if nbytes else HERE for place in range(len(fabric.devices))]
    return np.array([fabric.way_seconds(way, nbytes) for way in ways])

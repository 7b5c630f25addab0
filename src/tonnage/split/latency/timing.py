"""When the last node of an assignment is finished: the loop that every search runs many times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tonnage.split.latency.compiled import compiled
from tonnage.split.latency.graph import Graph

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Tables(NamedTuple):
    """The problem as arrays. Lists of neighbours lie one after the other; `*_start` says where each begins."""

    accelerator: Floats
    cpu: Floats
    transfer: Floats
    inputs: Ints
    inputs_start: Ints
    consumers: Ints
    consumers_start: Ints


class Scratch(NamedTuple):
    """Working memory of `timed`, made once. A place is an accelerator, or after those a node of the processors."""

    waiting: Ints  # inputs of a place that are not finished
    start: Floats  # when the inputs of a place that are finished are there
    queue: Ints  # places whose inputs are all there
    first: Ints  # a node of an accelerator
    following: Ints  # by node: the next of the same accelerator
    duration: Floats  # by accelerator
    taken: Ints  # by accelerator: the last tensor that it took in
    cause: Ints  # by place: the one that it waited for last, or -1; behind all places the one that finishes last


def tables_of(graph: Graph) -> Tables:
    problem = graph.problem
    inputs, inputs_start = _flat(graph.inputs)
    consumers, consumers_start = _flat(graph.consumers)
    supported = [seconds if np.isfinite(seconds) else 0.0 for seconds in problem.accelerator_seconds]
    return Tables(
        accelerator=np.array(supported, dtype=np.float64),
        cpu=np.array(problem.cpu_seconds, dtype=np.float64),
        transfer=np.array(problem.transfer_seconds, dtype=np.float64),
        inputs=inputs,
        inputs_start=inputs_start,
        consumers=consumers,
        consumers_start=consumers_start,
    )


def scratch_for(accelerators: int, nodes: int) -> Scratch:
    places = accelerators + nodes
    return Scratch(
        waiting=np.zeros(places, dtype=np.int64),
        start=np.zeros(places),
        queue=np.zeros(places, dtype=np.int64),
        first=np.zeros(accelerators, dtype=np.int64),
        following=np.zeros(nodes, dtype=np.int64),
        duration=np.zeros(accelerators),
        taken=np.zeros(accelerators, dtype=np.int64),
        cause=np.full(places + 1, -1, dtype=np.int64),
    )


@compiled
def timed(tables: Tables, devices: Ints, scratch: Scratch) -> tuple[float, float]:
    """The latency, and the work of all devices together. Infinite where places wait for each other in a circle."""
    accelerators = len(scratch.first)
    scratch.waiting[:] = 0
    scratch.start[:] = 0.0
    scratch.cause[:] = -1
    _gather(tables, devices, scratch)
    filled, work, places = 0, 0.0, 0
    for place in range(accelerators + len(devices)):
        if place < accelerators:
            if scratch.first[place] < 0:
                continue
            work += scratch.duration[place]
        else:
            if devices[place - accelerators] >= 0:
                continue
            work += tables.cpu[place - accelerators]
        places += 1
        if scratch.waiting[place] == 0:
            scratch.queue[filled] = place
            filled += 1
    return _run(tables, devices, scratch, filled, places), work


@compiled
def _gather(tables: Tables, devices: Ints, scratch: Scratch) -> None:
    """Members, durations and missing inputs of the places."""
    accelerators = len(scratch.first)
    scratch.first[:] = -1
    scratch.duration[:] = 0.0
    scratch.taken[:] = -1
    for node in range(len(devices)):
        device = devices[node]
        if device >= 0:
            scratch.following[node] = scratch.first[device]
            scratch.first[device] = node
            scratch.duration[device] += tables.accelerator[node]
        leaves = False
        for at in range(tables.consumers_start[node], tables.consumers_start[node + 1]):
            consumer = tables.consumers[at]
            other = devices[consumer]
            if other < 0:
                scratch.waiting[accelerators + consumer] += 1
                leaves = True
            elif other != device:
                scratch.waiting[other] += 1
                leaves = True
                if scratch.taken[other] != node:
                    scratch.taken[other] = node
                    scratch.duration[other] += tables.transfer[node]
        if leaves and device >= 0:
            scratch.duration[device] += tables.transfer[node]


@compiled
def _run(tables: Tables, devices: Ints, scratch: Scratch, filled: int, places: int) -> float:
    """Let the places of the queue run, and those that this makes ready."""
    accelerators = len(scratch.first)
    latency, done = 0.0, 0
    while done < filled:
        place = scratch.queue[done]
        done += 1
        alone = place >= accelerators
        finish = scratch.start[place] + (tables.cpu[place - accelerators] if alone else scratch.duration[place])
        if finish >= latency:
            latency = finish
            scratch.cause[-1] = place
        node = place - accelerators if alone else scratch.first[place]
        while node >= 0:
            for at in range(tables.consumers_start[node], tables.consumers_start[node + 1]):
                consumer = tables.consumers[at]
                other = devices[consumer]
                if other == place:
                    continue
                target = accelerators + consumer if other < 0 else other
                if finish >= scratch.start[target]:
                    scratch.start[target] = finish
                    scratch.cause[target] = place
                scratch.waiting[target] -= 1
                if scratch.waiting[target] == 0:
                    scratch.queue[filled] = target
                    filled += 1
            node = -1 if alone else scratch.following[node]
    return latency if filled == places else np.inf


def _flat(lists: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    starts = np.zeros(len(lists) + 1, dtype=np.int64)
    starts[1:] = np.cumsum([len(each) for each in lists])
    return np.array([member for each in lists for member in each], dtype=np.int64), starts

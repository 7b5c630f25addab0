"""When nothing fits: by how much, and what would be enough."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tonnage.errors import DoesNotFit
from tonnage.split.problem import DeviceClass, Problem, nowhere
from tonnage.split.throughput import split_for_throughput
from tonnage.units import format_bytes

_MOST_DEVICES = 64
NameOf = Callable[[int], str]  # of an operation by its position


def does_not_fit(problem: Problem, name_of: NameOf) -> DoesNotFit:
    """The error for a problem without any distribution."""
    if not problem.classes:
        return DoesNotFit("there are no devices to put the network onto")
    if nowhere(problem).any():
        group = int(np.flatnonzero(nowhere(problem))[0])
        names = ", ".join(name_of(position) for position in problem.members[group][:4])
        return DoesNotFit(
            f"operation {names} can run on none of the devices",
            "name devices that can run it, or let it go from the others that it must be with",
        )
    share = _fullest(problem)
    total = format_bytes(int(problem.memory_bytes.sum()))
    if share is None:
        return DoesNotFit(f"no way was found to put the network ({total}) onto these devices")
    largest = max(problem.classes, key=lambda each: each.memory_bytes)
    needed, has = format_bytes(int(np.ceil(largest.memory_bytes * share))), format_bytes(int(largest.memory_bytes))
    offered = format_bytes(int(sum(each.memory_bytes * each.count for each in problem.classes)))
    return DoesNotFit(
        f"the network needs {total}, the devices offer {offered}, and at best one of them would have to hold {share:.0%} "
        f"of its memory ({needed} of {has} on {largest.name})",
        _enough(problem, largest, needed),
    )


def _fullest(problem: Problem) -> float | None:
    """The least share of its memory that the fullest device must hold."""
    answer = split_for_throughput(memory_problem(problem), good_enough=0.01)
    return None if answer is None else answer.chain.value


def memory_problem(problem: Problem) -> Problem:
    """The same with memory in the place of time."""
    return replace(problem, classes=tuple(_by_memory(problem, each) for each in problem.classes), nets=())


def _by_memory(problem: Problem, each: DeviceClass) -> DeviceClass:
    shares = problem.memory_bytes / each.memory_bytes
    return replace(each, seconds=np.where(np.isfinite(each.seconds), shares, np.inf), memory_bytes=np.inf)


def _enough(problem: Problem, largest: DeviceClass, needed: str) -> str:
    for more in range(1, _MOST_DEVICES):
        devices = largest.devices + tuple(f"more{index}" for index in range(more))
        classes = tuple(replace(each, devices=devices) if each is largest else each for each in problem.classes)
        share = _fullest(replace(problem, classes=classes))
        if share is not None and share <= 1:
            return f"{more} more such as {largest.name} would be enough, or {needed} on each"
    return f"{needed} on each such as {largest.name} would be enough"

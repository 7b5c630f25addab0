"""What the solvers see: groups of operations that stay together, tensors as nets over them, classes of devices.

The load of a device that holds the set S of groups is the seconds of their computing on its class plus the seconds to move
every net that has members inside and outside S, each net once. Where computing and moving overlap, it is the largest of
computing, what comes in, and what goes out. This depends on S and the class alone: not on where the other ends are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import inf

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceClass:
    """Devices that are alike for the solvers."""

    name: str
    devices: tuple[str, ...]
    seconds: Floats  # of each group; inf where it cannot run
    seconds_per_unit: float  # to move one unit of a net's weight in
    seconds_per_unit_out: float
    memory_bytes: float = inf

    @property
    def count(self) -> int:
        return len(self.devices)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Net:
    """A tensor, or several with the same members: the groups that make or use it. `back` is the weight of what moves
    against the order of the groups, as gradients do. `copies` is how many send it back to the maker, if that is known."""

    members: tuple[int, ...]
    weight: float = 0.0
    back: float = 0.0
    copies: float = 1.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """Groups in a topological order. `members` of a group are positions of operations in the network."""

    members: tuple[tuple[int, ...], ...]
    followers: tuple[tuple[int, ...], ...]  # of each group, the groups that must not come before it
    nets: tuple[Net, ...]
    memory_bytes: Floats  # of each group, on any device
    classes: tuple[DeviceClass, ...]
    overlaps: bool = False  # moving and computing go on at once
    passes_on: bool = False  # who reads a net sends it to the next that does; else its maker sends to all at once
    keeps_inputs: bool = False  # micro-batches in flight keep what came in, to compute the rest again
    # Of each group, where given: what it keeps for every micro-batch in flight, what each of its replicas sends to each
    # other one for a sample, and how many of its operations no two devices may share.
    stash_bytes: Floats = field(default_factory=lambda: np.zeros(0))
    sync_bytes: Floats = field(default_factory=lambda: np.zeros(0))
    unshared: Floats = field(default_factory=lambda: np.zeros(0))

    @property
    def size(self) -> int:
        return len(self.members)

    @cached_property
    def leaders(self) -> tuple[tuple[int, ...], ...]:
        """Of each group, the groups that must not come after it."""
        found: list[list[int]] = [[] for _ in self.members]
        for group, followers in enumerate(self.followers):
            for follower in followers:
                found[follower].append(group)
        return tuple(tuple(each) for each in found)


def nowhere(problem: Problem) -> npt.NDArray[np.bool_]:
    """Which groups can run on no class of devices."""
    return np.asarray(np.isinf(np.stack([each.seconds for each in problem.classes])).all(axis=0))

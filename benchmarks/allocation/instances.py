"""Seeded random instances: many tasks, GPUs of eight types, memory filled to a chosen share.

A task's seconds are its length (log-uniform) divided by the speed of the type, times log-normal noise of its own for each
type: speeds are unrelated, not only scaled. Lengths are cut where a task would take longer than the mean load of a GPU on
a GPU of mean speed. Memory is log-uniform over one decade and scaled so that all tasks together fill `filled` of all memory; a
task that is larger than the memory of a type cannot run there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tonnage.allocate.assign import Floats, Instance, Ints
from tonnage.units import GIB

# Relative speeds and memories of eight cards between a T4 and an H200; shares of a mixed cluster.
SPEEDS = np.array([1.0, 1.4, 2.0, 2.2, 3.0, 4.5, 6.5, 9.0])
MEMORY_GIB = np.array([16, 24, 32, 40, 48, 80, 96, 141])
SHARES = np.array([0.20, 0.10, 0.12, 0.13, 0.15, 0.15, 0.10, 0.05])


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What a random instance looks like."""

    tasks: int
    gpus: int
    filled: float = 0.85  # of all memory, where tasks stay resident
    resident: bool = True
    decades: float = 1.5  # between the shortest task and the longest
    noise: float = 0.25  # of a task's speed on a type, as a standard deviation of its logarithm
    correlation: float = 0.0  # of length and memory: -1 to 1
    tail: float = 0.0  # standard deviation of a log-normal factor on lengths, before they are cut
    cut: float = 1.0  # the longest task, in mean loads of a GPU
    little_memory_on_fast: bool = False  # turns the memories of the types round


def random_instance(kind: Kind, seed: int) -> Instance:
    random = np.random.default_rng([seed, kind.tasks, kind.gpus])
    counts = _counts(kind.gpus)
    memory_gib = MEMORY_GIB[::-1] if kind.little_memory_on_fast else MEMORY_GIB
    lengths, rank = _lengths(kind, counts, random)
    memory = _memory(kind, int(counts @ memory_gib), rank, random)
    seconds = lengths[:, None] / SPEEDS * np.exp(kind.noise * random.standard_normal((kind.tasks, len(SPEEDS))))
    capacity = (memory_gib * GIB).astype(np.int64)
    return Instance(
        seconds=np.where(memory[:, None] <= capacity, seconds, np.inf),
        memory_bytes=np.repeat(memory[:, None], len(SPEEDS), axis=1),
        counts=counts,
        capacity_bytes=capacity,
        resident=kind.resident,
        weights=np.ones(kind.tasks),
    )


def _counts(gpus: int) -> Ints:
    """Shares of all GPUs, rounded so that none is lost."""
    edges = np.rint(np.cumsum(SHARES) * gpus).astype(np.int64)
    return np.diff(edges, prepend=0)


def _lengths(kind: Kind, counts: Ints, random: np.random.Generator) -> tuple[Floats, Floats]:
    """Seconds on a GPU of speed one, and the rank of each task among all (0 to 1)."""
    rank = random.random(kind.tasks)
    lengths = 10.0 ** (kind.decades * rank) * np.exp(kind.tail * random.standard_normal(kind.tasks))
    mean_speed = float(counts @ SPEEDS) / kind.gpus
    for _ in range(50):  # cutting lowers the mean load, and so the cut
        longest = kind.cut * mean_speed * lengths.sum() / float(counts @ SPEEDS)
        lengths = np.minimum(lengths, longest)
    return 60.0 * lengths, rank


def _memory(kind: Kind, all_gib: int, rank: Floats, random: np.random.Generator) -> Ints:
    """Bytes of each task; the largest fits the second largest type."""
    own = random.random(kind.tasks)
    goes_with = rank if kind.correlation >= 0 else 1.0 - rank
    size = 10.0 ** (np.abs(kind.correlation) * goes_with + (1.0 - np.abs(kind.correlation)) * own)
    most_gib = float(np.sort(MEMORY_GIB)[-2])
    for _ in range(50):
        size = np.minimum(size * kind.filled * all_gib / size.sum(), most_gib)
    return np.floor(size * GIB).astype(np.int64)

"""Several tasks on one GPU: whether its memory holds them all, and how fast each is beside the others.

Without partitions a GPU gives its processors to one process at a time, so what counts is which part of the time each
keeps it busy; memory bandwidth is shared as well. As long as neither sums to more than the whole, nobody waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist

from tonnage.allocate.problem import Device, Problem, Profile


def memory_needed(profiles: Sequence[Profile], risk: float) -> float:
    """Bytes that the tasks together do not exceed, except with probability `risk`.

    Deviations are added as if independent for half of their variance and common for the other half: estimates of like
    programs err alike.
    """
    mean = sum(profile.memory_bytes for profile in profiles)
    independent = sqrt(sum(profile.memory_deviation_bytes**2 for profile in profiles))
    common = sum(profile.memory_deviation_bytes for profile in profiles)
    deviation = sqrt(0.5 * independent**2 + 0.5 * common**2)
    return mean + NormalDist().inv_cdf(1.0 - risk) * deviation


def memory_holds(device: Device, profiles: Sequence[Profile], risk: float) -> bool:
    return memory_needed(profiles, risk) <= device.memory_bytes


def joint_speeds(problem: Problem, profiles: Sequence[Profile]) -> list[float]:
    """Of each task beside the others, as a part of its speed alone."""
    if len(profiles) == 1:
        return [1.0]
    crowd = max(1.0, sum(each.busy for each in profiles), sum(each.bandwidth for each in profiles))
    return [(1.0 - problem.overhead) / crowd for _ in profiles]


def pays(problem: Problem, profiles: Sequence[Profile]) -> bool:
    """Together they get more done than one after the other."""
    return sum(joint_speeds(problem, profiles)) > 1.0

"""Several tasks on one GPU: whether its memory holds them all, and how fast each is beside the others.

Without partitions a GPU works for one process at a time, in slices that go round. So everybody gets as much of its time as
it wants, up to an equal share; what some do not want goes to the others. As long as all that is wanted is less than the
whole, nobody waits; beyond that, changing from one to the other costs a little. Seven programs in all pairs on an H200
agree with it to 6 % in the median (benchmarks/allocation/pairs.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

from tonnage.allocate.problem import Device, Problem, Profile


def memory_needed(profiles: Sequence[Profile], risk: float) -> float:
    """Bytes that the tasks together do not exceed, except with probability `risk`.

    Deviations are added as they are: equal programs err alike, and no sum deviates more than its parts together.
    """
    mean = sum(profile.memory_bytes for profile in profiles)
    deviation = sum(profile.memory_deviation_bytes for profile in profiles)
    return mean + NormalDist().inv_cdf(1.0 - risk) * deviation


def memory_holds(device: Device, profiles: Sequence[Profile], risk: float) -> bool:
    return memory_needed(profiles, risk) <= device.memory_bytes


def joint_speeds(problem: Problem, profiles: Sequence[Profile]) -> list[float]:
    """Of each task beside the others, as a part of its speed alone."""
    wanted = [max(each.busy, each.bandwidth) for each in profiles]
    if len(wanted) == 1 or sum(wanted) <= 1.0:
        return [1.0] * len(wanted)
    return [(1.0 - problem.overhead) * got / want for got, want in zip(equal_shares(wanted), wanted, strict=True)]


def equal_shares(wanted: Sequence[float]) -> list[float]:
    """Of one GPU: nobody gets more than it wants, and what is left is shared equally."""
    got = [0.0] * len(wanted)
    left = 1.0
    for done, number in enumerate(sorted(range(len(wanted)), key=lambda number: wanted[number])):
        got[number] = min(wanted[number], left / (len(wanted) - done))
        left -= got[number]
    return got


def pays(problem: Problem, profiles: Sequence[Profile]) -> bool:
    """Together they get more done than one after the other."""
    return sum(joint_speeds(problem, profiles)) > 1.0

"""Bounds around an estimate, from how far estimates were from measured runs.

`benchmarks/accuracy/memory.py` prints how often measured runs lie inside. What is uncertain is the workspace that cuDNN
takes, so bounds widen with the largest of them; on GPUs that were never measured they widen again.
"""

from __future__ import annotations

from tonnage.estimate.estimate import Interval
from tonnage.units import MIB

COVERAGE = 0.9


def around(value: int, share: float, slack_bytes: int, doubt_bytes: int, widen: float) -> Interval:
    """An interval of `share` of the value, some slack, and what is doubtful, on either side."""
    margin = int(widen * (value * share + slack_bytes) + doubt_bytes)
    return Interval(value, max(value - margin, 0), value + margin)


def allocated(value: int, doubt_bytes: int, widen: float) -> Interval:
    return around(value, 0.001, 2 * MIB, doubt_bytes // 32, widen)


def reserved(value: int, doubt_bytes: int, widen: float) -> Interval:
    return around(value, 0.01, 8 * MIB, doubt_bytes * 2 // 5, widen)


def device(value: int, doubt_bytes: int, widen: float) -> Interval:
    """The high bound is meant for decisions: it is to hold in 99 of 100 runs."""
    return around(value, 0.015, 16 * MIB, doubt_bytes * 9 // 5, widen)

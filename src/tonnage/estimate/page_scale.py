"""Logarithmic scales of the report, on which values and their intervals are placed."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log, log10

from tonnage.estimate.estimate import Interval

Scale = tuple[float, float]  # the lowest and the highest value


def scale_of(intervals: Sequence[Interval]) -> Scale:
    """The lowest and the highest bound, for a scale of powers of ten; never empty."""
    low = min((i.low for i in intervals if i.low > 0), default=1.0)
    high = max((i.high for i in intervals if i.high > 0), default=1.0)
    return low / 1.1, max(high, low) * 1.1


def place(value: float, scale: Scale) -> float:
    """In percent, on a logarithmic scale."""
    low, high = scale
    return 100 * min(max(log(max(value, low) / low) / log(high / low), 0.0), 1.0)


def whisker(interval: Interval, scale: Scale) -> str:
    low, value, high = (place(bound, scale) for bound in (interval.low, interval.value, interval.high))
    return (
        f'<span class="scale" aria-hidden="true"><i class="whisker" style="left:{low:.1f}%;width:{high - low:.1f}%"></i>'
        f'<i class="dot" style="left:{value:.1f}%"></i></span>'
    )


def marks(scale: Scale) -> list[float]:
    """Round numbers on the scale: powers of ten, with 2 and 5 times of them where there are few."""
    low, high = scale
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    factors = (1,) if log10(high / low) > 3 else (1, 3) if log10(high / low) > 1.5 else (1, 2, 5)
    return [mark for power in powers for factor in factors if low <= (mark := factor * 10.0**power) <= high]

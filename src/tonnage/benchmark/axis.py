"""One number that a campaign varies: its values, or the range in which they are chosen."""

import math
from dataclasses import dataclass

from tonnage.benchmark.workloads.number import Number, Value
from tonnage.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """`values` if there are any, otherwise every allowed value from `low` to `high`."""

    number: Number
    values: tuple[Value, ...] = ()
    low: int = 0
    high: int = 0

    @property
    def name(self) -> str:
        return self.number.name

    def at(self, share: float) -> Value:
        """The value at a share of the axis, from 0 to below 1. Ranges are spread on the scale of their number."""
        if self.values:
            return self.values[int(share * len(self.values))]
        if self.number.scale == "log":
            return _between(self.number, self.low, self.high, share)
        step = self.number.multiple
        return self.low + step * int(share * ((self.high - self.low) // step + 1))


def axis_of_values(number: Number, values: list[object]) -> Axis:
    """An axis of these values; raises `UsageError` for one that is not allowed or given twice."""
    checked: list[Value] = []
    for value in values:
        allowed = number.check(value)
        if allowed in checked:
            raise UsageError(f"{allowed} is given twice")
        checked.append(allowed)
    if not checked:
        raise UsageError("must not be empty")
    return Axis(number=number, values=tuple(checked))


def axis_of_range(number: Number, low: object, high: object) -> Axis:
    """An axis of all values between two; raises `UsageError` if they are not allowed or not in order."""
    if number.choices:
        raise UsageError(f"{number.name} has no range; list values of {number.allowed}")
    first, last = number.check(low), number.check(high)
    assert isinstance(first, int)
    assert isinstance(last, int)
    if first >= last:
        raise UsageError(f"a range goes from a smaller to a larger number, not from {first} to {last}")
    return Axis(number=number, low=first, high=last)


def in_steps(axis: Axis, steps: object) -> Axis:
    """The range as that many values, both ends included, spread on the scale of the number."""
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 2:
        raise UsageError(f"steps must be a whole number of at least 2, not {steps!r:.40}")
    if steps > axis.high - axis.low + 1:
        raise UsageError(f"there are fewer than {steps} values from {axis.low} to {axis.high}")
    shares = (step / (steps - 1) for step in range(steps))
    values = dict.fromkeys(_between(axis.number, axis.low, axis.high, share) for share in shares)
    return Axis(number=axis.number, values=tuple(values))


def _between(number: Number, low: int, high: int, share: float) -> int:
    """From `low` at share 0 to `high` at share 1, rounded to what the number allows."""
    if number.scale == "log":
        exact = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
    else:
        exact = low + share * (high - low)
    rounded = round(exact / number.multiple) * number.multiple
    return min(max(rounded, low), high)

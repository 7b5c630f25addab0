"""The Trace at a batch size that was not captured.

Two captures of one program at different batch sizes usually differ in nothing but numbers, each of which grows by the same
amount with every sample. Then the Trace at any batch follows exactly, and a third capture proves it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from tonnage.program.trace import Attribute, Operator, TensorSpec, Trace


@dataclass(frozen=True, eq=False)
class Family:
    """Traces of one program at all batch sizes, spanned by two of them."""

    small: Trace
    large: Trace

    @classmethod
    def span(cls, small: Trace, large: Trace) -> Family | None:
        """None if the two do more than scale."""
        family = cls(small, large)
        same = (
            small.origin.batch is not None
            and large.origin.batch is not None
            and small.origin.batch != large.origin.batch
            and np.array_equal(small.event_kind, large.event_kind)
            and np.array_equal(small.event_subject, large.event_subject)
            and np.array_equal(small.call_operator, large.call_operator)
            and [op.name for op in small.operators] == [op.name for op in large.operators]
        )
        return family if same else None

    def at(self, batch: int) -> Trace:
        """The Trace at this batch; raises ValueError where a number does not scale evenly."""
        share = self._share(batch)
        operators = tuple(
            _operator(a, b, share) for a, b in zip(self.small.operators, self.large.operators, strict=True)
        )
        return replace(
            self.small,
            block_bytes=_column(self.small.block_bytes, self.large.block_bytes, share),
            call_host_bytes=_column(self.small.call_host_bytes, self.large.call_host_bytes, share),
            call_host_random=_column(self.small.call_host_random, self.large.call_host_random, share),
            operators=operators,
            origin=replace(self.small.origin, batch=batch, epoch_steps=self._epoch_steps(batch)),
        )

    def agrees_with(self, trace: Trace) -> bool:
        """Does a third capture say the same?"""
        if trace.origin.batch is None or Family.span(self.small, trace) is None:
            return False
        try:
            return bool(np.array_equal(self.at(trace.origin.batch).block_bytes, trace.block_bytes))
        except ValueError:
            return False

    def _epoch_steps(self, batch: int) -> int:
        """As many samples in steps of another size, unless the program takes as many steps at any batch."""
        steps = self.small.origin.epoch_steps
        if steps == self.large.origin.epoch_steps:
            return steps
        return -(-steps * (self.small.origin.batch or 0) // batch)

    def _share(self, batch: int) -> Fraction:
        low, high = self.small.origin.batch or 0, self.large.origin.batch or 0
        return Fraction(batch - low, high - low)


def _column(small: npt.NDArray[np.int64], large: npt.NDArray[np.int64], share: Fraction) -> npt.NDArray[np.int64]:
    return small - (-(large - small) * share.numerator // share.denominator)


def _whole(value: Fraction) -> int:
    # Sizes that do not scale evenly (a sampled selection, say) are rounded up: a few bytes more, never less.
    return -(-value.numerator // value.denominator)


def _between(a: int, b: int, share: Fraction) -> int:
    return a if a == b else a + _whole(share * (b - a))


def _operator(a: Operator, b: Operator, share: Fraction) -> Operator:
    if a == b and a.attributes == b.attributes:
        return a
    return Operator(
        a.name,
        tuple(_spec(x, y, share) for x, y in zip(a.inputs, b.inputs, strict=True)),
        tuple(s for x, y in zip(a.outputs, b.outputs, strict=True) if (s := _spec(x, y, share)) is not None),
        _attributes(a.attributes, b.attributes, share),
    )


def _spec(a: TensorSpec | None, b: TensorSpec | None, share: Fraction) -> TensorSpec | None:
    if a is None or b is None or a == b:
        return a
    shape = tuple(_between(x, y, share) for x, y in zip(a.shape, b.shape, strict=True))
    strides = tuple(_between(x, y, share) for x, y in zip(a.strides, b.strides, strict=False))
    return TensorSpec(shape, a.dtype, a.layout, strides)


def _attributes(a: Mapping[str, Attribute], b: Mapping[str, Attribute], share: Fraction) -> dict[str, Attribute]:
    def between(x: Any, y: Any) -> Any:
        if type(x) is int and type(y) is int:
            return _between(x, y, share)
        if isinstance(x, tuple) and isinstance(y, tuple) and len(x) == len(y):
            return tuple(between(i, j) for i, j in zip(x, y, strict=True))
        return x

    return {name: between(value, b.get(name, value)) for name, value in a.items()}

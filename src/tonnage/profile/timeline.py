"""Who has the device when: intervals that overlap are shared out so that nothing is counted twice."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tonnage.profile.trace_columns import Floats


class Busy:
    """How much of a time-line is taken by some intervals."""

    def __init__(self, starts: Floats, ends: Floats) -> None:
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
        reached = np.maximum.accumulate(ends) if len(ends) else ends
        before = np.concatenate(([-np.inf], reached[:-1])) if len(ends) else ends
        begins = starts > before
        self._begin = starts[begins]
        last = np.append(np.flatnonzero(begins)[1:] - 1, len(starts) - 1) if len(starts) else np.zeros(0, np.int64)
        self._end = reached[last] if len(starts) else ends
        self._before = np.concatenate(([0.0], np.cumsum(self._end - self._begin)))

    def until(self, moments: Floats) -> Floats:
        """Time taken before each moment."""
        if len(self._begin) == 0:
            return np.zeros(len(moments))
        at = np.searchsorted(self._begin, moments, side="right") - 1
        inside = np.clip(moments - self._begin[at], 0, self._end[at] - self._begin[at])
        taken: Floats = np.where(at >= 0, self._before[at] + inside, 0.0)
        return taken

    def between(self, starts: Floats, ends: Floats) -> Floats:
        return self.until(ends) - self.until(starts)


def shares(starts: Floats, ends: Floats) -> tuple[Floats, Floats]:
    """For each interval, the part that none which began earlier has: where it begins, and where it ends."""
    order = np.argsort(starts, kind="stable")
    reached = np.maximum.accumulate(ends[order]) if len(order) else ends
    before = np.concatenate(([-np.inf], reached[:-1])) if len(order) else ends
    begin = np.empty_like(starts)
    begin[order] = np.maximum(starts[order], before)
    return np.minimum(begin, ends), ends


USUAL_LEAD = 1.0  # microseconds, on an H200
_ENOUGH_GAPS = 20
_LONGEST_LEAD = 5.0  # a longer gap is a wait for something else


def with_lead(starts: Floats, ends: Floats, launched: Floats) -> Floats:
    """Where each piece of work begins if the moment counts that a device needs to begin it.

    Kernels that wait in the stream do not follow each other without a gap: events placed around them see it, their
    own durations do not. How long it is, pieces tell that were launched before the one before them had ended.
    """
    order = np.argsort(starts, kind="stable")
    reached = np.maximum.accumulate(ends[order]) if len(order) else ends
    before = np.concatenate(([-np.inf], reached[:-1])) if len(order) else ends
    gaps = starts[order] - before
    waited = gaps[(gaps > 0) & (gaps < _LONGEST_LEAD) & (launched[order] < before)]
    # The shortest quarter: longer gaps wait for more than the device's front end.
    lead = float(np.quantile(waited, 0.25)) if len(waited) >= _ENOUGH_GAPS else USUAL_LEAD
    begin = np.empty_like(starts)
    begin[order] = np.where(gaps > 0, np.maximum(before, starts[order] - lead), starts[order])
    return begin


def step_of(moments: Floats, boundaries: Floats) -> npt.NDArray[np.int64]:
    """The number of the step that a moment lies in; -1 before the first and after the last."""
    found = np.searchsorted(boundaries, moments, side="right") - 1
    found[found >= len(boundaries) - 1] = -1
    return found

"""A step on two time-lines: the host launches, the GPU runs what was launched, and each may wait for the other.

The GPU starts a kernel when the host has launched it and the kernel before has ended; a copy that the host waits for makes
the host idle until the GPU gets there. Steps are repeated until their length no longer changes, since a host that is ahead
of its GPU in one step is still ahead in the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# From a launch on the host to the start of the kernel on an idle GPU (a launch and its way through the queue).
LAUNCH_SECONDS = 4e-6
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Timeline:
    """When each call of the last step was launched, began and ended, counted from the step's own beginning."""

    launched: Floats
    started: Floats
    ended: Floats
    host_seconds: float  # of the step, waiting left out
    step_seconds: float

    @property
    def busy_seconds(self) -> float:
        return float((self.ended - self.started).sum())


def simulate(host: Floats, device: Floats, waits: npt.NDArray[np.bool_]) -> Timeline:
    """`host` and `device` are seconds of each call, `waits` says whether the host waits for it to end."""
    return simulate_each(host, device[None, :], waits)[0]


def simulate_each(host: Floats, device: Floats, waits: npt.NDArray[np.bool_]) -> list[Timeline]:
    """One time-line for each row of `device`, such as one for each GPU."""
    rows, count = device.shape
    if count == 0:
        nothing = np.zeros(0)
        return [Timeline(nothing, nothing, nothing, 0.0, 0.0)] * rows
    pieces = _pieces(host, device, waits)
    host_clock = device_clock = origin = np.zeros((rows, 1))
    launched, started = np.empty((rows, count)), np.empty((rows, count))
    for _ in range(_ROUNDS):
        origin = np.maximum(host_clock, device_clock)
        for piece in pieces:
            host_clock, device_clock = piece.run(launched, started, host_clock, device_clock)
    seconds = (np.maximum(host_clock, device_clock) - origin)[:, 0].tolist()
    ended = started + device - origin
    host_seconds = float(host.sum())
    moments = zip(launched - origin, started - origin, ended, seconds, strict=True)
    return [Timeline(launches, starts, ends, host_seconds, last) for launches, starts, ends, last in moments]


@dataclass(frozen=True, slots=True)
class _Piece:
    """The calls from one wait to the next, between which nothing but sums and maxima are needed."""

    calls: slice
    launching: Floats  # seconds of the host from the beginning of the piece to the launch of each call
    before: Floats  # seconds of the GPU for the calls before each
    last_seconds: Floats  # of the GPU, for the last call
    waits: bool

    def run(self, launched: Floats, started: Floats, host_clock: Floats, device_clock: Floats) -> tuple[Floats, Floats]:
        """Fills in when each call is launched and starts; returns the clocks of host and GPU after the last."""
        launches = launched[:, self.calls] = host_clock + self.launching
        # started[i] = max over j <= i of (arrival[j] + sum of device[j..i-1])
        arrival = np.maximum(launches + LAUNCH_SECONDS, device_clock) - self.before
        starts = started[:, self.calls] = np.maximum.accumulate(arrival, axis=1) + self.before
        host_clock, device_clock = launches[:, -1:], starts[:, -1:] + self.last_seconds
        return np.maximum(host_clock, device_clock) if self.waits else host_clock, device_clock


def _pieces(host: Floats, device: Floats, waits: npt.NDArray[np.bool_]) -> list[_Piece]:
    ends = [*(np.flatnonzero(waits[:-1]) + 1).tolist(), len(host)]
    pieces = []
    for first, last in pairwise([0, *ends]):
        calls, seconds = slice(first, last), device[:, first:last]
        before = np.cumsum(seconds, axis=1) - seconds
        pieces.append(_Piece(calls, np.cumsum(host[calls]), before, seconds[:, -1:], bool(waits[last - 1])))
    return pieces

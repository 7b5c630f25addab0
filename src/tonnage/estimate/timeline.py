"""A step on two time-lines: the host launches, the GPU runs what was launched, and each may wait for the other.

The GPU starts a kernel when the host has launched it and the kernel before has ended; a copy that the host waits for makes
the host idle until the GPU gets there. Steps are repeated until their length no longer changes, since a host that is ahead
of its GPU in one step is still ahead in the next.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    count = len(host)
    if count == 0:
        nothing = np.zeros(0)
        return Timeline(nothing, nothing, nothing, 0.0, 0.0)
    host_clock = device_clock = 0.0
    begins: list[float] = []
    launched = started = ended = np.zeros(count)
    for _ in range(_ROUNDS):
        begins.append(max(host_clock, device_clock))
        launched, started, ended, host_clock = _step(host, device, waits, host_clock, device_clock)
        device_clock = float(ended[-1])
    last = max(host_clock, device_clock)
    origin = begins[-1]
    return Timeline(launched - origin, started - origin, ended - origin, float(host.sum()), last - origin)


def _step(
    host: Floats, device: Floats, waits: npt.NDArray[np.bool_], host_clock: float, device_clock: float
) -> tuple[Floats, Floats, Floats, float]:
    """One step. Between two waits nothing but sums and maxima are needed, so each such stretch is one piece."""
    launched, started, ended = (np.empty(len(host)) for _ in range(3))
    first = 0
    for last in [*(np.flatnonzero(waits) + 1).tolist(), len(host)]:
        if last == first:
            continue
        piece = slice(first, last)
        launched[piece] = host_clock + np.cumsum(host[piece])
        before = np.cumsum(device[piece]) - device[piece]
        # ended[i] = max over j <= i of (arrival[j] + sum of device[j..i])
        arrival = np.maximum.accumulate(np.maximum(launched[piece] + LAUNCH_SECONDS, device_clock) - before)
        started[piece] = arrival + before
        ended[piece] = started[piece] + device[piece]
        device_clock = float(ended[last - 1])
        host_clock = float(launched[last - 1])
        if waits[last - 1]:
            host_clock = max(host_clock, device_clock)
        first = last
    return launched, started, ended, host_clock

"""What a worker writes down while it runs, and the clock of a node that is made slower."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Computed:
    """One run of a segment. `seconds` passed on the clock, `processor_seconds` in its thread."""

    number: int
    phase: str  # forward, backward, update
    seconds: float
    processor_seconds: float


@dataclass(frozen=True, slots=True)
class Transferred:
    """One message that arrived: from its first byte to its last."""

    number: int
    kind: str  # value, gradient; or weight, whose numbers are those of steps
    source: str
    nbytes: int
    seconds: float


@dataclass
class Timings:
    """Plain rows; the controller makes medians of them."""

    computed: list[Computed] = field(default_factory=list)
    transferred: list[Transferred] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {"computed": [*map(asdict, self.computed)], "transferred": [*map(asdict, self.transferred)]}

    @staticmethod
    def from_json(document: dict[str, Any]) -> Timings:
        return Timings(
            computed=[Computed(**row) for row in document["computed"]],
            transferred=[Transferred(**row) for row in document["transferred"]],
        )


@dataclass
class Clock:
    """Times computing. With a pace of p, it lasts p times the least processor time that the same work has needed so far:
    an emulation of a slower node, which is not slower still because others use this machine as well.

    On a GPU the time that passes is taken, as the thread's own tells nothing there.
    """

    timings: Timings
    pace: float = 1.0
    synchronize: Any = None  # waits until a GPU has done what it was given
    _least: dict[tuple[str, int], float] = field(default_factory=dict)

    @property
    def is_paced(self) -> bool:
        return self.pace > 1.0

    @contextmanager
    def computing(self, number: int, phase: str, place: int = 0) -> Iterator[None]:
        """A phase of a segment."""
        start = time.perf_counter()
        with self.rehearsing(phase, place) as used:
            yield
        if (rest := start + self.pace * self._least[phase, place] - time.perf_counter()) > 0 and self.is_paced:
            time.sleep(rest)
        self.timings.computed.append(Computed(number, phase, time.perf_counter() - start, used[0]))

    @contextmanager
    def rehearsing(self, phase: str, place: int) -> Iterator[list[float]]:
        """The same work without its row, to learn what it needs; the seconds are in the list afterwards."""
        start, processor_start, used = time.perf_counter(), time.thread_time(), list[float]()
        yield used
        if self.synchronize is not None:
            self.synchronize()
        used.append(time.perf_counter() - start if self.synchronize else time.thread_time() - processor_start)
        self._least[phase, place] = min(used[0], self._least.get((phase, place), used[0]))


def peak_bytes(device: str) -> int:
    """Of this process: what torch allocated on its GPU, or its main memory."""
    if device == "cuda":
        import torch

        return torch.cuda.max_memory_allocated()
    try:  # the kernel's own count begins anew with a program; that of getrusage goes on from the parent's
        status = Path("/proc/self/status").read_text()
        return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10

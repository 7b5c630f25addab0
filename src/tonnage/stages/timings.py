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
    """Times computing. With a pace of p, it lasts p times the processor time it needed: an emulation of a slower node.

    On a GPU the time that passes is taken, as the thread's own tells nothing there.
    """

    timings: Timings
    pace: float = 1.0
    synchronize: Any = None  # waits until a GPU has done what it was given

    @contextmanager
    def computing(self, number: int, phase: str) -> Iterator[None]:
        start, processor_start = time.perf_counter(), time.thread_time()
        yield
        if self.synchronize is not None:
            self.synchronize()
        used = time.perf_counter() - start if self.synchronize is not None else time.thread_time() - processor_start
        if (rest := start + self.pace * used - time.perf_counter()) > 0 and self.pace > 1.0:
            time.sleep(rest)
        self.timings.computed.append(Computed(number, phase, time.perf_counter() - start, used))


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

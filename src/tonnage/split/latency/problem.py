"""The latency of one sample: what is given, and what a solver answers.

Accelerators are equal and each runs at most one contiguous subgraph. It starts when all its outside inputs are finished and
takes transfers in, compute and transfers out, one after the other; a tensor counts once in each direction. A node on the
processors starts when its inputs are finished; there are processors for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, isnan

from tonnage.errors import UsageError

CPU = -1  # the device of a node that no accelerator has


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyProblem:
    """Nodes by position. Seconds stand for any one unit of time, bytes for any one unit of memory."""

    accelerator_seconds: tuple[float, ...]  # infinite where a node cannot run there
    cpu_seconds: tuple[float, ...]
    size_bytes: tuple[float, ...]
    transfer_seconds: tuple[float, ...]  # of a node's output, into or out of an accelerator
    edges: tuple[tuple[int, int], ...]
    classes: tuple[int, ...]  # nodes of one class share a device: one accelerator, or all of them the processors
    accelerators: int
    memory_bytes: float

    def __post_init__(self) -> None:
        """Refuse what no solver could answer."""
        count = len(self.cpu_seconds)
        columns = (self.accelerator_seconds, self.size_bytes, self.transfer_seconds, self.classes)
        if any(len(column) != count for column in columns):
            raise UsageError("every node needs seconds, a size, a transfer and a class", "give columns of one length")
        if any(source not in range(count) or target not in range(count) for source, target in self.edges):
            raise UsageError(f"an edge leads to a node that is not among the {count}", "edges are pairs of positions")
        if self.accelerators < 0 or isnan(self.memory_bytes) or self.memory_bytes < 0:
            raise UsageError("the number of accelerators or their memory is negative", "give 0 for none")
        _refuse_costs(self.cpu_seconds, self.transfer_seconds, self.size_bytes)
        if any(isnan(seconds) or seconds < 0 for seconds in self.accelerator_seconds):
            raise UsageError("a node has negative seconds on an accelerator", "give infinity where it cannot run")

    @property
    def nodes(self) -> int:
        return len(self.cpu_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyAnswer:
    """The best assignment found, and a latency that no assignment beats."""

    value: float
    bound: float
    assignment: tuple[int, ...]  # accelerator by node, or `CPU`
    proven: bool

    @property
    def gap(self) -> float:
        """How much better another assignment could be at most, as a part of the bound."""
        return max(self.value / self.bound - 1, 0.0) if self.bound > 0 else float(self.value > self.bound)


def _refuse_costs(*columns: Sequence[float]) -> None:
    if any(not isfinite(cost) or cost < 0 for column in columns for cost in column):
        raise UsageError("a node has a negative or infinite cost", "only seconds on an accelerator may be infinite")

"""Copies between host and GPU: pinned memory at the speed of the link, pageable memory at the speed of the host."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tonnage.hardware import Gpu
from tonnage.program.trace import H2D, Operator


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyModel:
    """Measured on an H200 (PCIe 5.0 x16) with programs of every kind: benchmarks/accuracy/results/times.jsonl."""

    link_share: float = 0.875  # of the link's rate after line coding; the rest is the protocol's
    h2d_latency_seconds: float = 0.95e-6  # of the copy engine; a small copy costs nothing else
    d2h_latency_seconds: float = 1.65e-6
    burst_bytes: int = 24576  # more than this is sent in pieces, which takes a moment to begin
    burst_seconds: float = 1.6e-6
    # The driver copies pageable memory through buffers of its own. What fits there crosses the link at nearly its speed,
    # more of it goes at the speed at which one core of the host copies. Bytes, and bytes per second from there on.
    pageable_h2d: tuple[tuple[float, float], ...] = (
        (5e5, 45e9), (1e6, 33e9), (2e6, 21e9), (4e6, 14e9), (6e6, 8.2e9), (1e9, 8.2e9),
    )  # fmt: skip
    pageable_d2h: tuple[tuple[float, float], ...] = ((1e6, 47e9), (2e6, 18e9), (4e6, 14e9), (1e7, 13e9), (1e9, 13e9))
    staged_bytes: int = 1 << 20

    def device_seconds(self, operator: Operator, gpu: Gpu) -> float:
        """How long the copy occupies the GPU's own time-line."""
        size = _size(operator)
        link = (gpu.cpu_link_bytes_second or gpu.pcie_bytes_second) * self.link_share
        latency = self.h2d_latency_seconds if operator.name == H2D else self.d2h_latency_seconds
        if operator.attributes.get("pinned") is not True:
            link = min(link, self._pageable(operator, size))
        begin = self.burst_seconds if size > self.burst_bytes else 0.0
        return latency + begin + size / link

    def host_seconds(self, operator: Operator) -> float:
        """What the host itself copies, besides launching; more than fits a buffer makes it wait for the GPU instead."""
        size = _size(operator)
        if operator.attributes.get("pinned") is True or size > self.staged_bytes:
            return 0.0
        return size / self._pageable(operator, 1e9)

    def _pageable(self, operator: Operator, size: float) -> float:
        steps = self.pageable_h2d if operator.name == H2D else self.pageable_d2h
        sizes, rates = zip(*steps, strict=True)
        return float(np.interp(math.log(max(size, 1.0)), [math.log(s) for s in sizes], rates))


def _size(operator: Operator) -> int:
    return sum(spec.nbytes for spec in operator.inputs if spec is not None)


def waits(operator: Operator) -> bool:
    """Does the host wait until the copy has ended? Traces that do not say come from programs that do."""
    return operator.attributes.get("waits") is not False

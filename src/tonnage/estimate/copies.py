"""Copies between host and GPU: pinned memory at the speed of the link, pageable memory at the speed of the host."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.hardware import Gpu
from tonnage.program.trace import H2D, Operator


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyModel:
    """Measured with `tonnage bench run` on an H200 (PCIe 5.0 x16): benchmarks/kernels/results."""

    link_share: float = 0.88  # of the link's rate after line coding; the rest is the protocol's
    latency_seconds: float = 1.0e-6  # of the copy engine
    # The driver copies pageable memory through buffers of its own, which is the host's work.
    pageable_h2d_bytes_second: float = 9.5e9
    pageable_d2h_bytes_second: float = 13.0e9
    # Less than this is taken into such a buffer at once, and the copy itself runs at the speed of the link.
    staged_bytes: int = 1 << 20

    def device_seconds(self, operator: Operator, gpu: Gpu) -> float:
        """How long the copy occupies the GPU's own time-line."""
        size = _size(operator)
        link = (gpu.cpu_link_bytes_second or gpu.pcie_bytes_second) * self.link_share
        seconds = self.latency_seconds + size / link
        if operator.attributes.get("pinned") is True or size <= self.staged_bytes:
            return seconds
        return max(seconds, size / self._pageable(operator))

    def host_seconds(self, operator: Operator) -> float:
        """What the host itself copies, besides launching."""
        size = _size(operator)
        if operator.attributes.get("pinned") is True or size > self.staged_bytes:
            return 0.0  # it waits for the device's time-line instead
        return size / self._pageable(operator)

    def _pageable(self, operator: Operator) -> float:
        return self.pageable_h2d_bytes_second if operator.name == H2D else self.pageable_d2h_bytes_second


def _size(operator: Operator) -> int:
    return sum(spec.nbytes for spec in operator.inputs if spec is not None)


def waits(operator: Operator) -> bool:
    """Does the host wait until the copy has ended? Traces that do not say come from programs that do."""
    return operator.attributes.get("waits") is not False

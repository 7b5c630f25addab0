"""What a GPU can do at best, from its catalogue entry: rates that a utilisation is a share of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tonnage.estimate.kernels.table import ARITHMETICS, Floats
from tonnage.hardware import Gpu

# Bytes that an SM can ask of the last-level cache in one cycle (NVIDIA's figure for Volta and later).
L2_BYTES_CYCLE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Rates per second, at the boost clock."""

    operations: Floats  # by arithmetic
    bandwidth: float
    l2_bandwidth: float
    l2_bytes: float
    sms: float
    clock: float

    @classmethod
    def of(cls, gpu: Gpu) -> Rates:
        clock = gpu.boost_clock_mhz * 1e6
        return cls(
            operations=np.array([max(gpu.peak_tflops(name), 0.01) * 1e12 for name in ARITHMETICS]),
            bandwidth=float(gpu.bandwidth_bytes_second),
            l2_bandwidth=gpu.sms * L2_BYTES_CYCLE * clock,
            l2_bytes=float(gpu.l2_bytes),
            sms=float(gpu.sms),
            clock=clock,
        )

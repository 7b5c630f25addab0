"""Energy of a step: what the board draws anyway, what a busy GPU adds, and a price for every operation and every byte.

The power cap comes back as time: a step that would need more than the board may draw takes as long as its energy needs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tonnage.estimate.kernels.table import ARITHMETICS, WorkTable
from tonnage.hardware import Gpu

# Energy of an operation relative to Hopper's: process node and design of the generation, for plain units and for tensor
# cores. Pascal to Ada as their public operator latencies under a power limit imply (benchmarks/accuracy/gpu_ops.py); the
# others are set by their process node and are our assumption.
_PLAIN = {
    "Kepler": 5.0, "Maxwell": 3.5, "Pascal": 2.5, "Volta": 2.15, "Turing": 2.45, "Ampere": 1.55, "Ada Lovelace": 1.0,
    "Hopper": 1.0, "Blackwell": 0.9, "CDNA": 1.6, "CDNA 2": 1.4, "CDNA 3": 1.0,
}  # fmt: skip
_TENSOR = {
    "Volta": 2.4, "Turing": 2.4, "Ampere": 1.07, "Ada Lovelace": 1.27, "Hopper": 1.0, "Blackwell": 0.9, "CDNA": 1.6,
    "CDNA 2": 1.4, "CDNA 3": 1.0,
}  # fmt: skip
_UNKNOWN = 1.5


def node_factors(gpu: Gpu) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Energy of an operation on this generation of chips relative to Hopper's, by arithmetic."""
    plain = _PLAIN.get(gpu.architecture, _UNKNOWN)
    tensor = _TENSOR.get(gpu.architecture, plain)
    return np.array([plain if name in ("fp32", "fp64") else tensor for name in ARITHMETICS])


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyModel:
    """Fitted on an H200; other GPUs scale with their board power and the generation of their chip."""

    idle_share: float = 0.172  # of the board power, drawn while a program is there and the GPU does nothing
    busy_share: float = 0.063  # more while any kernel runs
    picojoules_operation: tuple[float, ...] = (10.1, 4.6, 1.5, 1.5, 20.0)  # by arithmetic, as in ARITHMETICS
    picojoules_byte: float = 174.0

    def work_joules(self, table: WorkTable, gpu: Gpu) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """What each work needs beyond the board's idle and busy power."""
        price = np.array(self.picojoules_operation[: len(ARITHMETICS)])[table.arithmetic]
        memory = 1.0 if gpu.memory_type.startswith("HBM") else 1.3
        return np.asarray(
            (
                table.operations * price * node_factors(gpu)[table.arithmetic]
                + table.bytes * self.picojoules_byte * memory
            )
            * 1e-12
        )

    def idle_watts(self, gpu: Gpu) -> float:
        return self.idle_share * gpu.tdp_watts

    def step_joules(self, gpu: Gpu, step_seconds: float, busy_seconds: float, work_joules: float) -> float:
        busy = self.busy_share * gpu.tdp_watts * min(busy_seconds, step_seconds)
        return self.idle_watts(gpu) * step_seconds + busy + work_joules

    def capped_share(self, gpu: Gpu, busy_seconds: float, work_joules: float) -> float:
        """How much longer kernels take because the board may not draw what they would need; 1 if it may."""
        available = gpu.tdp_watts * (1 - self.idle_share - self.busy_share) * busy_seconds
        return max(1.0, work_joules / available) if available > 0 else 1.0

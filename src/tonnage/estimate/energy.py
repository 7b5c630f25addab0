"""Energy of a step: what the board draws anyway, what a busy GPU adds, and a price for every operation and every byte.

The power cap comes back as time: a step that would need more than the board may draw takes as long as its energy needs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tonnage.estimate.kernels.table import ARITHMETICS, WorkTable
from tonnage.hardware import Gpu

# Energy of an operation relative to Hopper's at its own clock: process node and design of the generation.
_NODE = {
    "Kepler": 6.0, "Maxwell": 4.2, "Pascal": 3.0, "Volta": 2.0, "Turing": 2.0, "Ampere": 1.5, "Ada Lovelace": 1.0,
    "Hopper": 1.0, "Blackwell": 0.9, "CDNA": 1.5, "CDNA 2": 1.35, "CDNA 3": 1.0,
}  # fmt: skip


def node_factor(gpu: Gpu) -> float:
    """Energy of an operation on this generation of chips, relative to Hopper's."""
    return _NODE.get(gpu.architecture, 1.5)


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
            (table.operations * price * node_factor(gpu) + table.bytes * self.picojoules_byte * memory) * 1e-12
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

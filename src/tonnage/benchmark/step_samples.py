"""Steps that were measured, beside what their Trace says about them: what host and energy models are fitted to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tonnage.estimate import copies
from tonnage.estimate.copies import CopyModel
from tonnage.estimate.kernels.model import KernelModel
from tonnage.estimate.step import Step
from tonnage.estimate.timeline import Floats
from tonnage.hardware import Gpu
from tonnage.program.trace import D2H, H2D


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepSample:
    """One measured step. Seconds of phases are None where the program has no such phase."""

    name: str
    family: str
    gpu: Gpu
    step: Step
    step_seconds: float
    forward_seconds: float | None = None
    backward_seconds: float | None = None
    optimizer_seconds: float | None = None
    busy_seconds: float | None = None  # kernels alone, without copies between host and GPU
    energy_joules: float | None = None
    energy_step_seconds: float | None = None  # of the steps during which energy was measured

    def device_seconds(self, kernels: KernelModel, copy_model: CopyModel) -> Floats:
        """Of each call: as predicted, scaled to what the kernels really took, so that only the host is in question."""
        predicted = self.step.by_operator(kernels.seconds(self.step.works, self.gpu))[self.step.operator]
        total = float(predicted.sum())
        if self.busy_seconds and total > 0:
            predicted *= self.busy_seconds * self.step.turns / total
        operators = self.step.operators
        copied = [copy_model.device_seconds(op, self.gpu) if op.name in (H2D, D2H) else 0.0 for op in operators]
        return np.asarray(predicted + np.array(copied)[self.step.operator])

    def waits(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        flags = [op.name in (H2D, D2H) and copies.waits(op) for op in self.step.operators]
        return np.array(flags, dtype=np.bool_)[self.step.operator]

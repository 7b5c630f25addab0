"""How long a step takes on a GPU, phase by phase, and what energy it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tonnage.estimate import copies
from tonnage.estimate.measured import known_seconds
from tonnage.estimate.step import Step
from tonnage.estimate.time_model import TimeModel
from tonnage.estimate.timeline import Floats, Timeline, simulate
from tonnage.hardware import Gpu
from tonnage.program.trace import D2H, H2D, Operator, Phase


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepTime:
    """Seconds of a step and its parts, which add up to it; idle time of the GPU counts for the phase that it waits for."""

    step_seconds: float
    forward_seconds: float
    backward_seconds: float
    optimizer_seconds: float
    h2d_seconds: float
    d2h_seconds: float
    host_seconds: float
    busy_seconds: float
    energy_joules: float
    timeline: Timeline
    device_seconds: Floats  # of each call
    launch_seconds: Floats  # of the host, for each call
    measured_share: float  # of the kernels' time, that of operators measured with these very shapes

    @property
    def power_watts(self) -> float:
        return self.energy_joules / self.step_seconds if self.step_seconds else 0.0


class StepTimer:
    """Times one step on any GPU; what does not depend on the GPU is found once."""

    def __init__(self, step: Step, model: TimeModel) -> None:
        self.step, self.model = step, model

    @cached_property
    def _launches(self) -> Floats:
        """Of the host, for each call: launching, and what it copies itself."""
        copied = _of_copies(self.step, self.model.copies.host_seconds)
        return np.asarray(self.model.host.seconds(self.step) + copied[self.step.operator])

    @cached_property
    def _waits(self) -> npt.NDArray[np.bool_]:
        waits = [op.name in (H2D, D2H) and copies.waits(op) for op in self.step.operators]
        return np.array(waits, dtype=np.bool_)[self.step.operator]

    def on(self, gpu: Gpu) -> StepTime:
        step, model = self.step, self.model
        works = step.by_operator(model.kernels.seconds(step.works, gpu))
        joules = float((step.by_operator(model.energy.work_joules(step.works, gpu)) * step.calls).sum())
        kernels, known = _with_measured(step, works, model.measured.get(gpu.name, {}))
        busy = float((kernels * step.calls).sum())
        copied = _of_copies(step, lambda operator: model.copies.device_seconds(operator, gpu))
        device = (kernels * model.energy.capped_share(gpu, busy, joules) + copied)[step.operator]
        timeline = simulate(self._launches, device, self._waits)
        phases = {name: seconds / step.turns for name, seconds in phase_seconds(step, timeline, device).items()}
        occupied = float(device.sum()) / step.turns
        return StepTime(
            **phases,
            host_seconds=timeline.host_seconds / step.turns,
            busy_seconds=occupied,
            energy_joules=model.energy.step_joules(gpu, phases["step_seconds"], occupied, joules / step.turns),
            timeline=timeline,
            device_seconds=device,
            launch_seconds=self._launches,
            measured_share=float((known * step.calls).sum()) / max(busy, 1e-12),
        )


def time_step(step: Step, gpu: Gpu, model: TimeModel) -> StepTime:
    """A step of the program on this GPU."""
    return StepTimer(step, model).on(gpu)


def _with_measured(step: Step, computed: Floats, measured: Mapping[str, float]) -> tuple[Floats, Floats]:
    """Seconds of operators, measured where that is known, and the part of them that is."""
    found = known_seconds(step.operators, step.rules, measured)
    known = np.array([np.nan if seconds is None else seconds for seconds in found], dtype=np.float64)
    has = np.isfinite(known)
    return np.where(has, known, computed), np.where(has, known, 0.0)


def _of_copies(step: Step, seconds: Callable[[Operator], float]) -> Floats:
    """By operator; nothing for those that are no copies."""
    return np.array([seconds(op) if op.name in (H2D, D2H) else 0.0 for op in step.operators], dtype=np.float64)


def phase_seconds(step: Step, timeline: Timeline, device: Floats) -> dict[str, float]:
    """Seconds of the step and its parts. Time passes from the end of one call to the end of the next and counts for the
    phase of the latter, idle time included; of a copy only the copying counts as such."""
    ends = np.concatenate([[0.0], timeline.ended])
    passed = np.maximum(np.diff(np.maximum.accumulate(ends)), 0.0)
    copied = np.where(step.is_copy, np.minimum(passed, device), 0.0)
    h2d, d2h = (float(copied[step.is_called(name)].sum()) for name in (H2D, D2H))
    of_phase = passed - copied
    backward = float(of_phase[step.phase == Phase.BACKWARD].sum())
    optimizer = float(of_phase[step.phase == Phase.OPTIMIZER].sum())
    total = timeline.step_seconds
    return {
        "step_seconds": total,
        "forward_seconds": max(total - backward - optimizer - h2d - d2h, 0.0),
        "backward_seconds": backward,
        "optimizer_seconds": optimizer,
        "h2d_seconds": h2d,
        "d2h_seconds": d2h,
    }

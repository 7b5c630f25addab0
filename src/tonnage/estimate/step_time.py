"""How long a step takes on a GPU, phase by phase, and what energy it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tonnage.estimate import copies
from tonnage.estimate.copies import CopyModel
from tonnage.estimate.measured import known_seconds
from tonnage.estimate.step import Step
from tonnage.estimate.time_model import TimeModel
from tonnage.estimate.timeline import Floats, Timeline, simulate
from tonnage.hardware import Gpu
from tonnage.program.trace import D2H, H2D, Phase


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


def time_step(step: Step, gpu: Gpu, model: TimeModel) -> StepTime:
    """A step of the program on this GPU."""
    works = model.kernels.seconds(step.works, gpu)
    joules = float(step.by_operator(model.energy.work_joules(step.works, gpu))[step.operator].sum())
    by_operator, known = _with_measured(step, step.by_operator(works), model.measured.get(gpu.name, {}))
    kernels = by_operator[step.operator]
    kernels *= model.energy.capped_share(gpu, float(kernels.sum()), joules)
    device = kernels + _copy_seconds(step, gpu, model.copies)
    waits = np.array([op.name in (H2D, D2H) and copies.waits(op) for op in step.operators], dtype=np.bool_)
    launches = _host_seconds(step, model)
    timeline = simulate(launches, device, waits[step.operator])
    phases = {name: seconds / step.turns for name, seconds in phase_seconds(step, timeline, device).items()}
    busy = float(device.sum()) / step.turns
    return StepTime(
        **phases,
        host_seconds=timeline.host_seconds / step.turns,
        busy_seconds=busy,
        energy_joules=model.energy.step_joules(gpu, phases["step_seconds"], busy, joules / step.turns),
        timeline=timeline,
        device_seconds=device,
        launch_seconds=launches,
        measured_share=float(known[step.operator].sum() / max(by_operator[step.operator].sum(), 1e-12)),
    )


def _with_measured(step: Step, computed: Floats, measured: Mapping[str, float]) -> tuple[Floats, Floats]:
    """Seconds of operators, measured where that is known, and the part of them that is."""
    found = known_seconds(step.operators, step.rules, measured)
    known = np.array([np.nan if seconds is None else seconds for seconds in found], dtype=np.float64)
    has = np.isfinite(known)
    return np.where(has, known, computed), np.where(has, known, 0.0)


def _copy_seconds(step: Step, gpu: Gpu, model: CopyModel) -> Floats:
    by_operator = [model.device_seconds(op, gpu) if op.name in (H2D, D2H) else 0.0 for op in step.operators]
    return np.array(by_operator, dtype=np.float64)[step.operator]


def _host_seconds(step: Step, model: TimeModel) -> Floats:
    own = [model.copies.host_seconds(op) if op.name in (H2D, D2H) else 0.0 for op in step.operators]
    return model.host.seconds(step) + np.array(own, dtype=np.float64)[step.operator]


def phase_seconds(step: Step, timeline: Timeline, device: Floats) -> dict[str, float]:
    """Seconds of the step and its parts. Time passes from the end of one call to the end of the next and counts for the
    phase of the latter, idle time included; of a copy only the copying counts as such."""
    ends = np.concatenate([[0.0], timeline.ended])
    passed = np.maximum(np.diff(np.maximum.accumulate(ends)), 0.0)
    names = np.array(step.operator_names or ("",))[step.operator]
    copied = np.minimum(passed, device)
    h2d, d2h = (float(copied[names == name].sum()) for name in (H2D, D2H))
    of_phase = np.where(step.is_copy, passed - copied, passed)
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

"""How long a step takes on a GPU, phase by phase, and what energy it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tonnage.estimate import copies
from tonnage.estimate.step import Step
from tonnage.estimate.time_model import TimeModel
from tonnage.estimate.timeline import Floats, Timeline, simulate_each
from tonnage.hardware import Gpu
from tonnage.program.trace import D2H, H2D, Operator, Phase

_MOST_VALUES = 1 << 20  # calls times GPUs that are simulated at once


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
    moved_bytes: float  # read and written by kernels
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
        return next(self.on_each([gpu]))

    def on_each(self, gpus: Sequence[Gpu]) -> Iterator[StepTime]:
        """The step on each of the GPUs, several of which are simulated at once."""
        at_once = max(_MOST_VALUES // max(len(self.step.operator), 1), 1)
        for first in range(0, len(gpus), at_once):
            loads = [self._load(gpu) for gpu in gpus[first : first + at_once]]
            device = np.stack([load.seconds for load in loads])[:, self.step.operator]
            timelines = simulate_each(self._launches, device, self._waits)
            for load, seconds, timeline in zip(loads, device, timelines, strict=True):
                yield self._described(load, seconds, timeline)

    def _load(self, gpu: Gpu) -> _Load:
        step, model = self.step, self.model
        works = step.by_operator(model.kernels.seconds(step.works, gpu))
        joules = float((step.by_operator(model.energy.work_joules(step.works, gpu)) * step.calls).sum())
        kernels, known = _with_measured(step, works, model.measured.get(gpu.name, {}))
        busy = float((kernels * step.calls).sum())
        copied = _of_copies(step, lambda operator: model.copies.device_seconds(operator, gpu))
        return _Load(
            gpu=gpu,
            seconds=kernels * model.energy.capped_share(gpu, busy, joules) + copied,
            joules=joules,
            moved_bytes=float((step.by_operator(step.works.bytes) * step.calls).sum()),
            measured_share=float((known * step.calls).sum()) / max(busy, 1e-12),
        )

    def _described(self, load: _Load, device: Floats, timeline: Timeline) -> StepTime:
        turns = self.step.turns
        phases = {name: seconds / turns for name, seconds in phase_seconds(self.step, timeline, device).items()}
        busy = float(device.sum()) / turns
        return StepTime(
            **phases,
            host_seconds=timeline.host_seconds / turns,
            busy_seconds=busy,
            energy_joules=self.model.energy.step_joules(load.gpu, phases["step_seconds"], busy, load.joules / turns),
            moved_bytes=load.moved_bytes / turns,
            timeline=timeline,
            device_seconds=device,
            launch_seconds=self._launches,
            measured_share=load.measured_share,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Load:
    """What a step asks of one GPU, before anything waits."""

    gpu: Gpu
    seconds: Floats  # of each operator, at the clock that the power limit allows
    joules: float  # of all kernels
    moved_bytes: float
    measured_share: float


def time_step(step: Step, gpu: Gpu, model: TimeModel) -> StepTime:
    """A step of the program on this GPU."""
    return StepTimer(step, model).on(gpu)


def _with_measured(step: Step, computed: Floats, measured: Mapping[str, float]) -> tuple[Floats, Floats]:
    """Seconds of operators, measured where that is known, and the part of them that is."""
    if not measured:
        return computed, np.zeros(len(computed))
    known = np.array([np.nan if key is None else measured.get(key, np.nan) for key in step.digests], dtype=np.float64)
    has = np.isfinite(known)
    return np.where(has, known, computed), np.where(has, known, 0.0)


def _of_copies(step: Step, seconds: Callable[[Operator], float]) -> Floats:
    """By operator; nothing for those that are no copies."""
    found = np.zeros(len(step.operators))
    for index in step.copying:
        found[index] = seconds(step.operators[index])
    return found


def phase_seconds(step: Step, timeline: Timeline, device: Floats) -> dict[str, float]:
    """Seconds of the step and its parts. Time passes from the end of one call to the end of the next and counts for the
    phase of the latter, idle time included; of a copy only the copying counts as such."""
    ends = np.concatenate([[0.0], timeline.ended])
    passed = np.maximum(np.diff(np.maximum.accumulate(ends)), 0.0)
    copied = np.where(step.is_copy, np.minimum(passed, device), 0.0)
    h2d, d2h = (float(copied[step.copies[name]].sum()) for name in (H2D, D2H))
    of_phase = np.bincount(step.phase, weights=passed - copied, minlength=len(Phase))
    backward, optimizer = float(of_phase[Phase.BACKWARD]), float(of_phase[Phase.OPTIMIZER])
    total = timeline.step_seconds
    return {
        "step_seconds": total,
        "forward_seconds": max(total - backward - optimizer - h2d - d2h, 0.0),
        "backward_seconds": backward,
        "optimizer_seconds": optimizer,
        "h2d_seconds": h2d,
        "d2h_seconds": d2h,
    }

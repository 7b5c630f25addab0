"""The analytic prediction: how long the program runs on a candidate, from its indicators and estimates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil

from tonnage.configure import host_side
from tonnage.configure.compute import Phases, phases_on
from tonnage.configure.configuration import HardwareConfiguration
from tonnage.configure.inventory import Candidate
from tonnage.configure.work import Work
from tonnage.estimate.data_parallel import data_parallel
from tonnage.estimate.estimate import Interval
from tonnage.estimate.kernels.rates import Rates
from tonnage.estimate.parallel import Gradient, Timeline
from tonnage.hardware import find_gpu

_GRADIENTS = 32  # pieces in which gradients are ready, evenly over backward, where nobody knows better
_LEAST_SECONDS = 1e-9  # of a step, whatever indicators say
_UPDATE_PASSES = 7  # Adam reads parameter, gradient and two states, and writes all but the gradient


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """How much of the node beside its GPUs the program is given."""

    cpu_cores: int
    sockets: int
    memory_bytes: int
    loader_workers: int
    pinned_memory: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Seconds of a step and of the whole run; `parts` add up to the step."""

    step_seconds: float
    run_seconds: Interval
    basis: str
    parts: Mapping[str, float] = field(hash=False)

    @property
    def bound_by(self) -> str:
        return max(self.parts, key=lambda name: self.parts[name])


def configuration(candidate: Candidate, sizing: Sizing) -> HardwareConfiguration:
    generation, lanes = candidate.pcie or (None, None)
    return HardwareConfiguration(
        node_type=candidate.node_type,
        gpu=candidate.gpu.name if candidate.gpu else "",
        gpu_count=candidate.gpu_count,
        communication=candidate.communication,
        pcie_generation=generation,
        pcie_lanes=lanes,
        cpu_cores=sizing.cpu_cores,
        sockets=sizing.sockets,
        memory_bytes=sizing.memory_bytes,
        loader_workers=sizing.loader_workers,
        pinned_memory=sizing.pinned_memory,
    )


def is_predictable(work: Work, candidate: Candidate) -> bool:
    if candidate.gpu is None:
        return work.indicators.device == "cpu"
    return phases_on(work, candidate.gpu) is not None


@dataclass(frozen=True, eq=False)
class Predictor:
    """One candidate, of which something is known (`is_predictable`); what does not depend on its sizing is found once."""

    work: Work
    candidate: Candidate

    def predict(self, sizing: Sizing) -> Prediction:
        parts = self._busy_parts(sizing.pinned_memory)
        busy, count = sum(parts.values()), max(self.candidate.gpu_count, 1)
        if self.candidate.gpu is None:
            parts["compute"] *= max((self.work.indicators.cpu_cores_used or 1.0) / sizing.cpu_cores, 1.0)
        cores_each = max(sizing.cpu_cores // count, 1)
        parts["data wait"] = host_side.wait_seconds(self.loading_seconds, sizing.loader_workers, cores_each, busy)
        step = max(sum(parts.values()), _LEAST_SECONDS)
        run = step * ceil(self.work.run_steps / count)
        return Prediction(
            step_seconds=step,
            run_seconds=Interval(run, run * self.phases.low, run * self.phases.high),
            basis=self.phases.basis,
            parts=parts,
        )

    def busy_seconds(self, pinned: bool) -> float:
        """A step without waiting for data."""
        return sum(self._busy_parts(pinned).values())

    @cached_property
    def loading_seconds(self) -> float:
        return host_side.loading_seconds(self.work.indicators)

    @cached_property
    def phases(self) -> Phases:
        if self.candidate.gpu is None:
            return _on_processors(self.work)
        found = phases_on(self.work, self.candidate.gpu)
        assert found is not None  # who makes a predictor has asked `is_predictable`
        return found

    @property
    def idle_seconds(self) -> float:
        """What the GPU waits for the host goes wherever the program goes."""
        return 0.0 if self.phases.holds_idle else self.work.indicators.idle_seconds

    @cached_property
    def exposed_seconds(self) -> float:
        """What a step of several GPUs takes longer than that of one: gradients that backward does not hide."""
        phases, nbytes = self.phases, gradient_bytes(self.work)
        if self.candidate.topology is None or not phases.backward_seconds or not nbytes:
            return 0.0
        moments = [(place + 1) / _GRADIENTS * phases.backward_seconds for place in range(_GRADIENTS)]
        timeline = Timeline(
            forward_seconds=phases.forward_seconds,
            backward_seconds=phases.backward_seconds,
            optimizer_seconds=phases.optimizer_seconds,
            gradients=tuple(Gradient(ready_seconds=moment, nbytes=nbytes // _GRADIENTS) for moment in moments),
        )
        return max(data_parallel(timeline, self.candidate.topology).step_seconds - phases.seconds, 0.0)

    def _busy_parts(self, pinned: bool) -> dict[str, float]:
        idle = self.idle_seconds
        if self.candidate.gpu is None:
            return {"compute": self.phases.seconds, "idle": idle}
        own, link = self.work.indicators, self.candidate.host_bytes_second
        copies = host_side.h2d_seconds(own, link, pinned) + host_side.d2h_seconds(own, link)
        return {
            "compute": self.phases.seconds,
            "communication": self.exposed_seconds,
            "copies": 0.0 if self.phases.holds_copies else copies,
            "idle": idle,
        }


def _on_processors(work: Work) -> Phases:
    own = work.indicators
    spread = 1.5  # another processor: our assumption, since the catalogue knows GPUs only
    return Phases(
        forward_seconds=own.forward_seconds,
        backward_seconds=own.backward_seconds,
        optimizer_seconds=own.optimizer_seconds,
        basis=own.basis,
        low=1 / spread,
        high=spread,
    )


def gradient_bytes(work: Work) -> int:
    """As given; else from the time that an optimizer bound by memory takes, and at most a quarter of the GPU's peak,
    which holds parameters, gradients and two states."""
    own = work.indicators
    if work.gradient_bytes is not None:
        return work.gradient_bytes
    if own.device != "cuda" or not own.optimizer_seconds:
        return 0
    touched = own.optimizer_seconds * Rates.of(find_gpu(own.gpu)).stream
    most = own.peak_gpu_bytes / 4 if own.peak_gpu_bytes else touched
    return round(min(touched / _UPDATE_PASSES, most))

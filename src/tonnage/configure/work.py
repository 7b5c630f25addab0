"""What is to be placed: the indicators of a program, estimates of it where there are any, and what its user wants."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from tonnage.errors import InvalidFile, UsageError
from tonnage.estimate.estimate import Estimate, Interval
from tonnage.hardware import find_gpu
from tonnage.profile.indicators import Indicators

MOST_STEPS = 10**12
MOST_GPUS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What an Estimate says of the program on one GPU: as much of it as a configuration depends on."""

    forward_seconds: float
    backward_seconds: float
    optimizer_seconds: float
    step_seconds: Interval
    device_bytes: int  # the upper bound of what it needs

    @classmethod
    def of(cls, estimate: Estimate) -> Known:
        if estimate.time is None:
            raise UsageError(f"the estimate for {estimate.gpu} says nothing about time")
        return cls(
            forward_seconds=estimate.time.forward_seconds.value,
            backward_seconds=estimate.time.backward_seconds.value,
            optimizer_seconds=estimate.time.optimizer_seconds.value,
            step_seconds=estimate.time.step_seconds,
            device_bytes=round(estimate.device_bytes.high),
        )

    @property
    def compute_seconds(self) -> float:
        return self.forward_seconds + self.backward_seconds + self.optimizer_seconds

    def check(self, gpu: str) -> None:
        step = self.step_seconds
        parts = (self.forward_seconds, self.backward_seconds, self.optimizer_seconds, self.device_bytes)
        if not all(math.isfinite(part) and part >= 0 for part in (*parts, step.low, step.value, step.high)):
            raise InvalidFile(f"the estimate for {gpu} has a negative or infinite number")
        if not (0 < step.low <= step.value <= step.high) or self.compute_seconds <= 0:
            raise InvalidFile(f"the estimate for {gpu} is of no step, or its bounds do not hold its value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """`run_steps` are those that one GPU would take; several GPUs share them. `known` is by the catalogue's names."""

    indicators: Indicators
    run_steps: int = 1000
    most_gpus: int = 1
    known: Mapping[str, Known] = field(default_factory=dict)
    seen: Mapping[str, Indicators] = field(default_factory=dict)  # earlier runs of the program, by GPU
    gradient_bytes: int | None = None
    framework: str = "torch"
    framework_version: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.run_steps <= MOST_STEPS:
            raise UsageError(f"a run of {self.run_steps} steps is impossible", f"choose from 1 to {MOST_STEPS:,}")
        if not 1 <= self.most_gpus <= MOST_GPUS:
            raise UsageError(f"{self.most_gpus} GPUs are impossible", f"choose from 1 to {MOST_GPUS:,}")
        if self.gradient_bytes is not None and self.gradient_bytes < 0:
            raise InvalidFile(f"gradients of {self.gradient_bytes} bytes cannot be")
        for gpu, known in self.known.items():
            known.check(gpu)
        if self.indicators.device == "cuda":
            find_gpu(self.indicators.gpu)  # raises `NotFound`: nothing can be said in proportion to an unknown GPU

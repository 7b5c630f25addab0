"""What a profile says, as plain values: indicators, steps one by one, operators, modules, copies, the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tonnage.profile.indicators import Indicators
from tonnage.store.rows import Environment

DEVICE_STACKS, HOST_STACKS, PYTHON_STACKS = "device time", "host time", "Python time"  # what seconds of stacks are
PARTS = ("forward", "backward", "optimizer", "h2d", "d2h", "data_wait", "idle")


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedStep:
    """One step under the profiler. The parts add up to `step_seconds`; copies that kernels hide are not in them."""

    step_seconds: float
    forward_seconds: float = 0.0
    backward_seconds: float = 0.0
    optimizer_seconds: float = 0.0
    h2d_seconds: float = 0.0
    d2h_seconds: float = 0.0
    data_wait_seconds: float = 0.0
    idle_seconds: float = 0.0
    h2d_busy_seconds: float = 0.0  # with what kernels hide
    d2h_busy_seconds: float = 0.0
    h2d_bytes: int = 0
    d2h_bytes: int = 0
    pinned_bytes: int = 0
    loader_seconds: float = 0.0  # on the host, whether the device works meanwhile or not

    @property
    def busy_seconds(self) -> float:
        return self.step_seconds - self.data_wait_seconds - self.idle_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockedStep:
    """One step beside the profiler, by the device's own clock where there is one. Spans hold idle moments as well."""

    step_seconds: float
    forward_span_seconds: float = 0.0  # from the call of a module until backward
    backward_span_seconds: float = 0.0
    optimizer_span_seconds: float = 0.0
    loader_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRow:
    """What one operator or one module takes in a step, on the device and on the host, without what is inside it."""

    name: str
    calls: float
    device_seconds: float
    host_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Frames from the outermost in, and the seconds that belong to the last of them."""

    frames: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileReport:
    """Everything that was seen in a window of steps."""

    indicators: Indicators
    traced: tuple[TracedStep, ...] = ()
    clocked: tuple[ClockedStep, ...] = ()
    operators: tuple[TimeRow, ...] = ()
    modules: tuple[TimeRow, ...] = ()
    stacks: tuple[Stack, ...] = ()
    stacks_are: str = ""  # what the seconds of the stacks are: of the device, of the host, of Python
    machine: Environment = field(default_factory=lambda: Environment(device="", gpu=""))
    memory: Mapping[str, int] = field(default_factory=dict)
    hint: str = ""
    notes: tuple[str, ...] = ()
    exit_code: int | None = None  # of the program, if it ran to its end

    def as_dict(self) -> dict[str, Any]:
        """The document of `--json`; stacks are files of their own."""
        return {
            "indicators": self.indicators.as_dict(),
            "traced_steps": [asdict(step) for step in self.traced],
            "clocked_steps": [asdict(step) for step in self.clocked],
            "operators": [asdict(row) for row in self.operators],
            "modules": [asdict(row) for row in self.modules],
            "machine": asdict(self.machine),
            "memory": dict(self.memory),
            "hint": self.hint,
            "notes": list(self.notes),
            "exit_code": self.exit_code,
        }

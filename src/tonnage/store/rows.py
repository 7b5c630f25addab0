"""The rows of the benchmark database as plain values: what was run, where, and what it took.

A `Measurement` is one workload under known conditions. It names its `Environment` (hardware, driver, libraries) and may
come with one `KernelRow` for each kernel that its operators launched and one `HostRow` for each operator's time on the
host. Seconds are seconds, bytes are bytes; a quantity that could not be measured is None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from tonnage.program.trace import Attribute, Operator


class Status(StrEnum):
    """How a run ended."""

    OK = "ok"
    OUT_OF_MEMORY = "out_of_memory"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Hardware, driver and library versions: equal environments give comparable measurements."""

    device: str  # "cuda" or "cpu"
    gpu: str  # the catalogue's name, or what the driver calls a GPU that the catalogue does not know; "" on a CPU
    gpu_memory_bytes: int | None = None
    power_limit_watts: float | None = None
    driver: str = ""
    cuda: str = ""
    cudnn: str = ""
    torch: str = ""
    python: str = ""
    platform: str = ""
    cpu: str = ""
    cpu_cores: int | None = None
    tonnage: str = ""


@dataclass(frozen=True, slots=True)
class Spread:
    """The mean of a quantity over steps and repetitions, and its standard deviation."""

    mean: float
    deviation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One workload, run under known conditions: means over steps 2..N+1 of all repetitions."""

    key: str  # digest of family, structure, batch, precision and everything else that was asked for
    campaign: str
    family: str
    structure: Mapping[str, Attribute]  # the numbers that describe the network
    batch: int
    input_shape: tuple[int, ...]  # of one sample
    precision: str = "float32"
    settings: Mapping[str, Attribute] = field(default_factory=dict)  # optimizer, memory format, TF32 ...
    mode: str = "training"
    status: Status = Status.OK
    message: str = ""
    measured_at: datetime
    steps: int = 0
    repetitions: int = 0
    step_seconds: Spread | None = None
    forward_seconds: Spread | None = None
    backward_seconds: Spread | None = None
    optimizer_seconds: Spread | None = None
    h2d_seconds: Spread | None = None
    d2h_seconds: Spread | None = None
    host_seconds: Spread | None = None  # until the host had launched everything of a step
    first_step_seconds: float | None = None
    h2d_bytes: int | None = None
    d2h_bytes: int | None = None
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    device_bytes: int | None = None
    power_watts: float | None = None
    energy_joules_step: float | None = None
    utilisation: float | None = None  # kernels' own time as a share of the step, 0..1; without kernels the driver's
    sm_clock_mhz: float | None = None
    temperature_celsius: float | None = None
    parameter_count: int | None = None
    storage_bytes: int | None = None  # of a checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """One kernel that an operator launches. `position` counts the different kernels of one call.

    An operator may launch the same kernel several times, as those on lists of tensors do: `seconds` is all of one call.
    """

    operator: Operator
    phase: str
    position: int
    kernel: str
    calls: int
    seconds: Spread
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRow:
    """What launching an operator costs the host."""

    operator: Operator
    phase: str
    calls: int
    seconds: Spread

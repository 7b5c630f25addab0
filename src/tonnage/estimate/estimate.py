"""What one program needs on one GPU, as plain values, and the report that holds the answers for all GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tonnage.estimate.step_view import StepView

_COPIES = {"tonnage::h2d": "copy to the GPU", "tonnage::d2h": "copy to the host"}


def operation(name: str) -> str:
    """An operator's name for people."""
    return _COPIES.get(name) or name.removeprefix("aten::")


@dataclass(frozen=True, slots=True)
class Interval:
    """A quantity with bounds that hold it with the estimate's coverage."""

    value: float
    low: float
    high: float

    def as_dict(self) -> dict[str, float]:
        return {"value": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakTensor:
    """One of the largest blocks in use at the peak."""

    bytes: int
    category: str
    module: str
    operator: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemoryMoment:
    """Where the program fails on a GPU that is too small."""

    step: int
    phase: str
    operator: str
    module: str
    requested_bytes: int
    allocated_bytes: int
    reserved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeEstimate:
    """How long a step takes, what it draws and what it costs, on one or several GPUs of a kind."""

    basis: str
    bound_by: str  # what the step waits for most: "GPU", "host", "copies" or "network"
    step_seconds: Interval
    forward_seconds: Interval
    backward_seconds: Interval
    optimizer_seconds: Interval
    h2d_seconds: Interval
    d2h_seconds: Interval
    power_watts: Interval
    energy_joules_step: Interval
    utilisation: float  # share of the step in which a kernel runs
    bandwidth_share: float = 0.0  # of the memory bandwidth that the GPU has in a step; no more than the utilisation
    network_seconds: float = 0.0  # of the step in which GPUs only wait for each other
    epoch_seconds: Interval | None = None
    cost_usd_hour: Interval | None = None

    def as_dict(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__slots__ if name != "basis"}
        plain = {name: v.as_dict() if isinstance(v, Interval) else v for name, v in values.items()}
        return {"time_basis": self.basis, **plain}


# Of a program that does nothing on a GPU.
_NO_TIME: dict[str, None] = dict.fromkeys("time_basis" if name == "basis" else name for name in TimeEstimate.__slots__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What one program needs on one GPU. `basis` says how it is known: measured, calibrated or specification."""

    gpu: str
    fits: bool
    basis: str
    gpu_count: int = 1
    peak_allocated_bytes: Interval
    peak_reserved_bytes: Interval
    device_bytes: Interval
    usable_bytes: int
    categories: Mapping[str, int]
    largest: tuple[PeakTensor, ...]
    storage_bytes: int
    h2d_bytes_step: int
    d2h_bytes_step: int
    coverage: float = 0.9
    out_of_memory: OutOfMemoryMoment | None = None
    max_batch: int | None = None
    time: TimeEstimate | None = None

    def as_dict(self) -> dict[str, Any]:
        """The contract of `--json`: bytes and seconds, never formatted text."""
        moment = self.out_of_memory
        return {
            "gpu": self.gpu,
            "fits": self.fits,
            "basis": self.basis,
            "gpu_count": self.gpu_count,
            "coverage": self.coverage,
            "peak_allocated_bytes": self.peak_allocated_bytes.as_dict(),
            "peak_reserved_bytes": self.peak_reserved_bytes.as_dict(),
            "device_bytes": self.device_bytes.as_dict(),
            "usable_bytes": self.usable_bytes,
            "categories": dict(self.categories),
            "largest_tensors": [_plain(tensor) for tensor in self.largest],
            "storage_bytes": self.storage_bytes,
            "h2d_bytes_step": self.h2d_bytes_step,
            "d2h_bytes_step": self.d2h_bytes_step,
            "max_batch": self.max_batch,
            "out_of_memory": None if moment is None else _plain(moment),
            **(self.time.as_dict() if self.time else _NO_TIME),
        }


def _plain(value: PeakTensor | OutOfMemoryMoment) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCurve:
    """Memory over the run, thinned out: bytes in use by category at each point, and where steps end."""

    gpu: str
    categories: Mapping[str, tuple[int, ...]]
    phases: tuple[str, ...]
    step_ends: tuple[int, ...]  # indices into the points
    peak: int  # index of the point with the peak


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The answer to `tonnage estimate`: one program on all asked GPUs."""

    program: str
    mode: str
    steps_traced: int
    batch: int | None
    parameter_count: int
    epoch_steps: int = 0  # of one GPU; 0 where nobody knows
    estimates: tuple[Estimate, ...]
    curve: MemoryCurve | None = None
    step: StepView | None = None  # on the GPU of the curve
    sweep: tuple[Report, ...] = ()
    warnings: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def fits_somewhere(self) -> bool:
        return any(estimate.fits for estimate in self.estimates)

    def as_dict(self) -> dict[str, Any]:
        return {
            "program": self.program,
            "mode": self.mode,
            "steps_traced": self.steps_traced,
            "batch": self.batch,
            "parameter_count": self.parameter_count,
            "epoch_steps": self.epoch_steps or None,
            **self.details,
            "estimates": [estimate.as_dict() for estimate in self.estimates],
            **({"sweep": [report._at_batch() for report in self.sweep]} if self.sweep else {}),
            "warnings": list(self.warnings),
        }

    def _at_batch(self) -> dict[str, Any]:
        return {"batch": self.batch, "estimates": [estimate.as_dict() for estimate in self.estimates]}

    def _repr_html_(self) -> str:
        from tonnage.estimate.page import render_fragment

        return render_fragment(self)

"""Indicators: what a configuration is chosen by. Measured in a run, or predicted where no run is possible."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self

from tonnage.errors import InvalidFile

Basis = Literal["measured", "predicted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Indicators:
    """Means over the steps of a window, per step. None is what was not there to be seen, such as the power of no GPU.

    Forward, backward, optimizer, copies, data wait and idle time add up to the step on the device's time-line.
    """

    program: str
    program_digest: str  # sha256:...
    basis: Basis
    device: Literal["cuda", "cpu"]
    gpu: str = ""  # as the catalogue names it
    gpu_count: int = 1
    steps: int
    step_seconds: float
    forward_seconds: float
    backward_seconds: float = 0.0
    optimizer_seconds: float = 0.0
    h2d_seconds: float = 0.0
    d2h_seconds: float = 0.0
    data_wait_seconds: float = 0.0  # the loop waits for its data loader
    idle_seconds: float = 0.0
    forward_span_seconds: float | None = None  # from begin to end, idle moments included, as events around it see it
    backward_span_seconds: float | None = None
    optimizer_span_seconds: float | None = None
    h2d_busy_seconds: float | None = None  # with what kernels hide; the copies above are those that nothing hides
    d2h_busy_seconds: float | None = None
    h2d_bytes: int = 0
    d2h_bytes: int = 0
    pinned_share: float = 0.0  # of the bytes that are copied
    peak_host_bytes: int | None = None
    peak_gpu_bytes: int | None = None
    cpu_cores_used: float | None = None
    cpu_utilisation: float | None = None  # of the cores that the process may use
    loader_workers: int | None = None
    gpu_utilisation: float | None = None
    power_watts: float | None = None

    @property
    def h2d_bytes_second(self) -> float | None:
        return _rate(self.h2d_bytes, self.h2d_busy_seconds or self.h2d_seconds)

    @property
    def d2h_bytes_second(self) -> float | None:
        return _rate(self.d2h_bytes, self.d2h_busy_seconds or self.d2h_seconds)

    def share(self, seconds: float) -> float:
        """Of the step."""
        return seconds / self.step_seconds if self.step_seconds > 0 else 0.0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"h2d_bytes_second": self.h2d_bytes_second, "d2h_bytes_second": self.d2h_bytes_second}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Raises `InvalidFile` with the field that is wrong. Fields of later versions are passed over."""
        known = {field.name: field for field in fields(cls)}
        missing = [name for name, field in known.items() if name not in plain and _is_required(field)]
        if missing:
            raise InvalidFile(f"indicators lack {', '.join(missing)}")
        try:
            found = cls(**{name: value for name, value in plain.items() if name in known})
        except TypeError as error:
            raise InvalidFile(f"indicators make no sense: {error}") from None
        found._check()
        return found

    def _check(self) -> None:
        if self.basis not in ("measured", "predicted") or self.device not in ("cuda", "cpu"):
            raise InvalidFile(f"indicators have the basis {self.basis!r} and the device {self.device!r}")
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, str) != (field.name in _TEXTS) and value is not None:
                raise InvalidFile(f"indicators have {field.name} = {value!r}")
            if isinstance(value, int | float) and (not math.isfinite(value) or value < 0):
                raise InvalidFile(f"indicators have {field.name} = {value!r}, which cannot be")
        if self.step_seconds <= 0 or self.steps < 1:
            raise InvalidFile("indicators are of no step")
        parts = sum(getattr(self, f"{name}_seconds") for name in _PARTS)
        if not 0.5 <= parts / self.step_seconds <= 1.05:  # those that are measured or predicted add up to it
            raise InvalidFile(
                f"indicators contradict themselves: parts of {parts:g} s in a step of {self.step_seconds:g} s"
            )


_PARTS = ("forward", "backward", "optimizer", "h2d", "d2h", "data_wait", "idle")
_TEXTS = ("program", "program_digest", "basis", "device", "gpu")


def _rate(size: int, seconds: float) -> float | None:
    return size / seconds if seconds > 0 and size else None


def _is_required(field: Any) -> bool:
    from dataclasses import MISSING

    return field.default is MISSING and field.default_factory is MISSING

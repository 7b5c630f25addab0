"""The answer: which operation runs on which device, and what that brings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tonnage.split.metrics import Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Subnetworks onto devices, with the value of the target, a bound that no distribution beats, and the metrics."""

    network: str
    target: str
    value: float
    bound: float
    proven_optimal: bool
    assignment: Mapping[str | int, str] = field(hash=False)  # device by the operation's id
    stages: tuple[str, ...] = ()  # devices in the order of the pipeline
    # Further devices that hold the same stage and take turns with samples, by the device of the assignment.
    replicas: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    metrics: Metrics | None = None
    own_values: Mapping[str, float] = field(
        default_factory=dict, hash=False
    )  # by the rules of a file of its own devices
    contiguous: bool = True

    @property
    def devices(self) -> tuple[str, ...]:
        """All that are used: those of a stage one after the other."""
        return tuple(device for stage in self.stages for device in (stage, *self.replicas.get(stage, ())))

    @property
    def gap(self) -> float:
        """How much better another distribution could be at most, as a part of the bound."""
        return max(self.value / self.bound - 1, 0.0) if self.bound > 0 else float(self.value > self.bound)

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        record: dict[str, Any] = {
            "target": self.target,
            "value": self.value,
            "bound": self.bound,
            "gap": self.gap,
            "proven_optimal": self.proven_optimal,
            "assignment": {str(operation): device for operation, device in self.assignment.items()},
        }
        if self.stages:
            record["stages"] = list(self.stages)
        if self.replicas:
            record["replicas"] = {device: list(further) for device, further in self.replicas.items()}
        if self.metrics is not None:
            record["metrics"] = asdict(self.metrics)
        elif self.own_values:
            record["metrics"] = dict(self.own_values)
        return record

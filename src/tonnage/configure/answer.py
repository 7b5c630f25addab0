"""The answer to "what shall this program run on": the choice, its predicted time, and everything else considered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tonnage.configure.configuration import HardwareConfiguration
from tonnage.configure.inventory import Candidate
from tonnage.configure.predict import Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class Considered:
    """One candidate with its predicted time, or None where it cannot run the program; `reason` is empty if it was taken."""

    name: str
    configuration: HardwareConfiguration | None
    prediction: Prediction | None
    reason: str

    def as_dict(self) -> dict[str, Any]:
        prediction = self.prediction
        return {
            "name": self.name,
            "configuration": self.configuration.as_dict() if self.configuration else None,
            "step_seconds": prediction.step_seconds if prediction else None,
            "run_seconds": prediction.run_seconds.as_dict() if prediction else None,
            "basis": prediction.basis if prediction else None,
            "bound_by": prediction.bound_by if prediction else None,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """`overruled` says that the rules' choice was given up for the minimum, which it was too far from."""

    configuration: HardwareConfiguration
    candidate: Candidate
    prediction: Prediction
    rules_version: str
    rules_configuration: HardwareConfiguration
    rules_run_seconds: float
    minimum_configuration: HardwareConfiguration
    minimum_run_seconds: float
    overruled: bool
    reasons: tuple[str, ...]
    considered: tuple[Considered, ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "configuration": self.configuration.as_dict(),
            "step_seconds": self.prediction.step_seconds,
            "run_seconds": self.prediction.run_seconds.as_dict(),
            "parts_seconds": dict(self.prediction.parts),
            "basis": self.prediction.basis,
            "bound_by": self.prediction.bound_by,
            "rules_version": self.rules_version,
            "rules_choice": self.rules_configuration.as_dict(),
            "rules_run_seconds": self.rules_run_seconds,
            "minimum": self.minimum_configuration.as_dict(),
            "minimum_run_seconds": self.minimum_run_seconds,
            "overruled": self.overruled,
            "reasons": list(self.reasons),
            "considered": [one.as_dict() for one in self.considered],
        }

"""A request for a configuration, as the client sends it, and what both sides call things."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tonnage.configure.work import Known, Work

ERROR_HEADER = "Tonnage-Error"  # the name of the error's class, since two may share a status


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run as a whole: how it ended, and the steps that it made in so many seconds."""

    state: str
    steps: int
    seconds: float


def plain_request(work: Work) -> dict[str, Any]:
    """As `bodies.ConfigurationRequest` reads it."""
    return {
        "indicators": work.indicators.as_dict(),
        "run_steps": work.run_steps,
        "most_gpus": work.most_gpus,
        "estimates": {gpu: _plain(known) for gpu, known in work.known.items()},
        "gradient_bytes": work.gradient_bytes,
        "framework": work.framework,
        "framework_version": work.framework_version,
    }


def _plain(known: Known) -> dict[str, Any]:
    step = known.step_seconds
    return {
        "forward_seconds": known.forward_seconds,
        "backward_seconds": known.backward_seconds,
        "optimizer_seconds": known.optimizer_seconds,
        "step_seconds": step.value,
        "step_seconds_low": step.low,
        "step_seconds_high": step.high,
        "device_bytes": known.device_bytes,
    }

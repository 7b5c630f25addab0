"""Indicators where no run is possible: what the Estimate says that a run would show."""

from __future__ import annotations

from tonnage.configure.work import Known
from tonnage.errors import UsageError
from tonnage.estimate.estimate import Estimate, Report
from tonnage.profile.indicators import Indicators
from tonnage.profile.predict import predicted_indicators
from tonnage.program.trace import Category


def indicators_of_report(report: Report, gpu: str, program_digest: str) -> Indicators:
    """Of the program on that GPU, marked as predicted; raises `UsageError` where there is no estimate for it."""
    estimate = _single(report, gpu)
    return predicted_indicators(
        estimate, program=report.program, program_digest=program_digest, steps=report.steps_traced
    )


def known_of(report: Report) -> dict[str, Known]:
    """What the report says of each GPU by itself."""
    return {e.gpu: Known.of(e) for e in report.estimates if e.gpu_count == 1 and e.time is not None}


def gradient_bytes_of(report: Report) -> int | None:
    """What several GPUs would exchange: the gradients at the peak, or those of all parameters in single precision."""
    if report.mode != "training":
        return 0
    first = next(iter(report.estimates), None)
    held = first.categories.get(Category.GRADIENTS.label, 0) if first else 0
    return max(held, 4 * report.parameter_count) or None


def _single(report: Report, gpu: str) -> Estimate:
    for estimate in report.estimates:
        if estimate.gpu == gpu and estimate.gpu_count == 1:
            return estimate
    raise UsageError(f"there is no estimate for {gpu}")

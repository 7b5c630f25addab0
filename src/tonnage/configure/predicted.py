"""Indicators where no run is possible: what the Estimate says that a run would show."""

from __future__ import annotations

from tonnage.configure.work import Known
from tonnage.errors import UsageError
from tonnage.estimate.estimate import Estimate, Report
from tonnage.profile.indicators import Indicators
from tonnage.program.trace import Category


def predicted_indicators(report: Report, gpu: str, program_digest: str) -> Indicators:
    """Of the program on that GPU, marked as predicted; raises `UsageError` where the estimate says no time."""
    estimate = _single(report, gpu)
    time = estimate.time
    if time is None:
        raise UsageError(f"the estimate of {report.program} says nothing about time: it does nothing on a GPU")
    phases = (time.forward_seconds.value, time.backward_seconds.value, time.optimizer_seconds.value)
    copies = time.h2d_seconds.value + time.d2h_seconds.value
    # An estimate's phases hold the moments in which the GPU waits for the host; indicators count these apart.
    busy = min(max(time.utilisation * time.step_seconds.value - copies, 0.0), sum(phases))
    forward, backward, optimizer = (seconds * busy / sum(phases) if busy else seconds for seconds in phases)
    return Indicators(
        program=report.program,
        program_digest=program_digest,
        basis="predicted",
        device="cuda",
        gpu=estimate.gpu,
        steps=max(report.steps_traced, 1),
        step_seconds=time.step_seconds.value,
        forward_seconds=forward,
        backward_seconds=backward,
        optimizer_seconds=optimizer,
        idle_seconds=sum(phases) - busy if busy else 0.0,
        h2d_seconds=time.h2d_seconds.value,
        d2h_seconds=time.d2h_seconds.value,
        h2d_bytes=estimate.h2d_bytes_step,
        d2h_bytes=estimate.d2h_bytes_step,
        peak_gpu_bytes=round(estimate.device_bytes.high),
        gpu_utilisation=min(time.utilisation, 1.0),
        power_watts=time.power_watts.value,
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

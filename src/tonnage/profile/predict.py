"""Indicators of a program that cannot be run here, from its Estimate. Marked as predicted, wherever they go."""

from __future__ import annotations

from tonnage.errors import CaptureError
from tonnage.estimate.estimate import Estimate
from tonnage.profile.indicators import Indicators
from tonnage.program.trace import D2H, H2D, Trace


def predicted_indicators(
    estimate: Estimate, *, program: str, program_digest: str = "", steps: int = 1, pinned_share: float = 0.0
) -> Indicators:
    """What a profile on the estimate's GPU would show. What an estimate does not know is None; no data is waited for."""
    time = estimate.time
    if time is None or time.step_seconds.value <= 0:
        raise CaptureError(f"{program} does nothing on a GPU: there are no indicators to predict")
    step = time.step_seconds.value
    copies = {"h2d_seconds": time.h2d_seconds.value, "d2h_seconds": time.d2h_seconds.value}
    phases = {
        "forward_seconds": time.forward_seconds.value, "backward_seconds": time.backward_seconds.value,
        "optimizer_seconds": time.optimizer_seconds.value,
    }  # fmt: skip
    # An estimate's phases hold the moments in which the GPU waits for the host; indicators count these apart.
    kernels = min(max(time.utilisation * step - sum(copies.values()), 0.0), sum(phases.values()))
    scale = kernels / sum(phases.values()) if kernels > 0 else 1.0
    parts = {name: seconds * scale for name, seconds in phases.items()} | copies
    parts = {name: seconds * min(1.0, step / max(sum(parts.values()), 1e-12)) for name, seconds in parts.items()}
    return Indicators(
        program=program,
        program_digest=program_digest,
        basis="predicted",
        device="cuda",
        gpu=estimate.gpu,
        gpu_count=estimate.gpu_count,
        steps=max(steps, 1),
        step_seconds=step,
        **parts,  # type: ignore[arg-type]  # all are seconds
        idle_seconds=max(step - sum(parts.values()), 0.0),
        h2d_busy_seconds=time.h2d_seconds.value,
        d2h_busy_seconds=time.d2h_seconds.value,
        h2d_bytes=estimate.h2d_bytes_step,
        d2h_bytes=estimate.d2h_bytes_step,
        pinned_share=pinned_share,
        peak_gpu_bytes=round(estimate.device_bytes.value),
        gpu_utilisation=time.utilisation,
        power_watts=time.power_watts.value,
    )


def pinned_share_of(trace: Trace) -> float:
    """Of the bytes that the last step copies."""
    copies = [trace.operators[trace.call_operator[call]] for call in trace.last_step_calls()]
    sizes = [
        (sum(spec.nbytes for spec in copy.inputs if spec is not None), copy.attributes.get("pinned") is True)
        for copy in copies
        if copy.name in (H2D, D2H)
    ]
    whole = sum(size for size, _ in sizes)
    return sum(size for size, pinned in sizes if pinned) / whole if whole else 0.0

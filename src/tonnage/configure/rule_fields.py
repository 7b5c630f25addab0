"""What rules may speak of: the indicators, shares of the step, and a little about the candidate they are asked for."""

from __future__ import annotations

from tonnage.configure import host_side
from tonnage.configure.predict import Predictor, gradient_bytes
from tonnage.configure.rules import Fields

# As measured: name and meaning, for messages and the reference.
INDICATORS = (
    "step_seconds", "forward_seconds", "backward_seconds", "optimizer_seconds", "h2d_seconds", "d2h_seconds",
    "data_wait_seconds", "idle_seconds", "h2d_bytes", "d2h_bytes", "h2d_bytes_second", "d2h_bytes_second",
    "pinned_share", "peak_host_bytes", "peak_gpu_bytes", "cpu_cores_used", "cpu_utilisation", "loader_workers",
    "gpu_utilisation", "power_watts",
)  # fmt: skip
SHARES = ("forward_share", "backward_share", "optimizer_share", "copy_share", "data_wait_share", "idle_share")
DERIVED = ("gradient_bytes", "gpu_count", "workers_wanted", "workers_kept")
FIELDS = (*INDICATORS, *SHARES, *DERIVED)


def fields_of(predictor: Predictor) -> Fields:
    """The value of each field. `workers_wanted` is how many load a step while the candidate computes one;
    `workers_kept` is that, and not less than the program has."""
    own = predictor.work.indicators
    wanted = host_side.workers_wanted(predictor.loading_seconds, predictor.busy_seconds(pinned=True))
    seconds = {
        "forward": own.forward_seconds, "backward": own.backward_seconds, "optimizer": own.optimizer_seconds,
        "copy": own.h2d_seconds + own.d2h_seconds, "data_wait": own.data_wait_seconds, "idle": own.idle_seconds,
    }  # fmt: skip
    return {
        **{name: getattr(own, name) for name in INDICATORS},
        **{f"{name}_share": own.share(part) for name, part in seconds.items()},
        "gradient_bytes": gradient_bytes(predictor.work),
        "gpu_count": predictor.candidate.gpu_count,
        "workers_wanted": wanted,
        "workers_kept": max(wanted, own.loader_workers or 0),
    }

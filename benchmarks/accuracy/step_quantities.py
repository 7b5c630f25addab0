"""What a row of `measure_time.py` says about a step, in the words of an estimate."""

import statistics
from typing import Any

NEGLIGIBLE_SECONDS = 5e-6


def measured(row: dict[str, Any]) -> dict[str, float | None]:
    """The quantities of one row. Forward is what is left of a step, as in the estimate."""
    step = statistics.median(row["step_seconds"])
    copied = row["busy_seconds"]["h2d"] + row["busy_seconds"]["d2h"]
    training = row["training"]
    backward, optimizer = row["backward_seconds"], row["optimizer_seconds"]
    return {
        "step_seconds": step,
        "forward_seconds": max(step - backward - optimizer - copied, 0.0),
        "backward_seconds": backward if training else None,
        "optimizer_seconds": optimizer if training else None,
        "copy_seconds": copied if copied > NEGLIGIBLE_SECONDS else None,
        "energy_joules_step": row.get("energy_joules_step"),
    }

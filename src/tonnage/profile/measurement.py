"""A run that told its own indicators, as a row of the benchmark database."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from tonnage.profile.indicators import Indicators
from tonnage.program.trace import Attribute
from tonnage.store.rows import Measurement, Spread, Status

FAMILY = "program"  # beside the families of sample workloads; the batch is not known
_STATUS = {"failed": Status.FAILED, "cancelled": Status.INTERRUPTED}


def measurement_of_run(
    indicators: Indicators,
    measured_at: datetime,
    *,
    campaign: str,
    structure: Mapping[str, Attribute],
    key: str = "",
    state: str = "succeeded",
) -> Measurement:
    """`key` tells runs that can be compared; without one, the program's digest. `state` is how the run ended."""
    return Measurement(
        key=key or indicators.program_digest,
        campaign=campaign,
        family=FAMILY,
        structure={"program": indicators.program, **structure},
        batch=0,
        input_shape=(),
        precision="",
        settings={"loader_workers": indicators.loader_workers, "gpu_count": indicators.gpu_count},
        mode="training" if indicators.backward_seconds else "inference",
        status=_STATUS.get(state, Status.OK),
        measured_at=measured_at,
        steps=indicators.steps,
        repetitions=1,
        step_seconds=Spread(indicators.step_seconds, 0.0),
        forward_seconds=Spread(indicators.forward_seconds, 0.0),
        backward_seconds=Spread(indicators.backward_seconds, 0.0),
        optimizer_seconds=Spread(indicators.optimizer_seconds, 0.0),
        h2d_bytes=indicators.h2d_bytes,
        d2h_bytes=indicators.d2h_bytes,
        reserved_bytes=indicators.peak_gpu_bytes,
        power_watts=indicators.power_watts,
        utilisation=indicators.gpu_utilisation,
    )

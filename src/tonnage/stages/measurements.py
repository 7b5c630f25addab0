"""A distribution that ran, as a row of the benchmark database."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from tonnage.split.distribution import Distribution
from tonnage.stages.carrying_out import Outcome
from tonnage.store.rows import Measurement, Spread, Status

CAMPAIGN = "splits"


def keep_measurement(outcome: Outcome, distribution: Distribution, location: str | Path | None = None) -> None:
    """One row: its step is the period of the pipeline, its structure the stages."""
    from tonnage.benchmark.environment import find_place
    from tonnage.store.database import open_database

    with open_database(location) as database:
        database.add(find_place("cpu", 0).environment, measurement_of(outcome, distribution, datetime.now(UTC)))


def measurement_of(outcome: Outcome, distribution: Distribution, measured_at: datetime) -> Measurement:
    report = outcome.report
    placed = [f"{operation}={device}" for operation, device in distribution.assignment.items()]
    placed += [f"{device}={','.join(further)}" for device, further in distribution.replicas.items()]
    digest = sha256("\0".join([distribution.network, *placed]).encode()).hexdigest()
    sizes = {stage.device: stage.operations for stage in report.stages}
    firsts = [
        stage for stage in report.stages if stage.device == stage.stage
    ]  # a sample passes one device of each stage
    return Measurement(
        key=f"sha256:{digest}",
        campaign=CAMPAIGN,
        family=distribution.network,
        structure={"stages": len(report.stages), **{f"operations of {name}": count for name, count in sizes.items()}},
        batch=report.micro_batches,
        input_shape=(),
        settings={"transport": report.transport, "target": distribution.target},
        mode=report.mode,
        status=Status.OK,
        measured_at=measured_at,
        steps=report.samples,
        repetitions=1,
        step_seconds=_spread(report.period_seconds.median, report.period_seconds.p95),
        forward_seconds=_spread(
            sum(stage.forward_seconds.median for stage in firsts),
            sum(stage.forward_seconds.p95 for stage in firsts),
        ),
    )


def _spread(median: float, p95: float) -> Spread:
    """For a normal distribution the 95th percentile is 1.645 deviations above the median."""
    return Spread(median, max(p95 - median, 0.0) / 1.645)

"""`tonnage split --run`: the first distribution for real, and what is kept of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.errors import UsageError

if TYPE_CHECKING:
    from tonnage.hardware import Cluster
    from tonnage.split.distribution import Distribution
    from tonnage.stages.carrying_out import Outcome, Where
    from tonnage.stages.splitting import Split, TrainingOptions

_VALID_SECONDS = 600.0


def run_first(
    found: Split,
    cluster: Cluster | None,
    where: Where,
    *,
    samples: int,
    training: TrainingOptions | None,
    progress: Callable[[str], None],
) -> Outcome:
    from tonnage.stages.carrying_out import carry_out
    from tonnage.stages.training import Training

    if found.exported is None or found.pool is None or cluster is None:
        raise UsageError("only a program can be run", "name one: model.py:build, with --cluster")
    trained = None
    if training is not None:
        trained = Training(
            steps=max(samples // training.micro_batches, 3),
            micro_batches=training.micro_batches,
            optimizer=training.optimizer,
            recompute=training.recompute,
        )
    return carry_out(
        found.exported, found.distributions[0], found.pool, cluster, where,
        samples=samples, training=trained, progress=progress,
    )  # fmt: skip


def keep(outcome: Outcome, distribution: Distribution, statistics: Path | None, record: bool) -> None:
    """What the run told: as statistics for the next plan, and as a row of the database."""
    from tonnage.split.statistics_file import statistics_text
    from tonnage.stages.carrying_out import observed
    from tonnage.stages.measurements import keep_measurement

    if statistics is not None:
        seen = observed(outcome, taken_at=time.time(), valid_seconds=_VALID_SECONDS)
        statistics.write_text(statistics_text(seen))
    if record:
        keep_measurement(outcome, distribution)


def read_assignment(path: Path) -> dict[str | int, str]:
    """Of a document that `tonnage split --json` printed; raises `NotFound` or `InvalidFile`."""
    from tonnage.errors import InvalidFile
    from tonnage.split.sources.content import read_json

    record = read_json(path)
    if isinstance(record, dict) and isinstance(record.get("distribution"), dict):
        record = record["distribution"]
    if isinstance(record, dict) and record.get("replicas"):
        raise UsageError(f"{path} has replicated stages, which cannot be re-planned", "split without --replicas")
    found = record.get("assignment") if isinstance(record, dict) else None
    if not isinstance(found, dict) or not all(isinstance(device, str) for device in found.values()):
        raise InvalidFile(f"{path} holds no assignment", "give what `tonnage split --json` printed for one target")
    return dict(found)


def write_page(found: Split, outcome: Outcome | None, path: Path) -> None:
    from tonnage.split.page import render_page

    if found.pool is None:
        raise UsageError("a page shows a network on a cluster", "add --cluster cluster.yaml, or leave out --html")
    measured = None if outcome is None else outcome.as_dict()
    path.write_text(render_page(found.pool, found.distributions, front=found.front, axes=found.axes, measured=measured))

"""`tonnage split --run`: the first distribution for real, once or in rounds, and what is kept of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.errors import UsageError

if TYPE_CHECKING:
    from tonnage.hardware import Cluster
    from tonnage.split.distribution import Distribution
    from tonnage.split.pool import Pool
    from tonnage.split.statistics import Statistics
    from tonnage.stages.adapting import Round
    from tonnage.stages.carrying_out import Outcome, Where
    from tonnage.stages.splitting import Split, TrainingOptions
    from tonnage.stages.training import Training


def run_rounds(
    found: Split,
    cluster: Cluster | None,
    where: Where,
    *,
    samples: int,
    training: TrainingOptions | None,
    rounds: int,
    statistics: Statistics | None,
    pessimistic: bool,
) -> Iterator[Round]:
    """The first distribution, and in later rounds what was planned since."""
    from tonnage.cli.output import progress
    from tonnage.split.observations import Statistics
    from tonnage.stages.adapting import adapt
    from tonnage.stages.carrying_out import carry_out

    if found.exported is None or found.pool is None or cluster is None:
        raise UsageError("only a program can be run", "name one: model.py:build, with --cluster")
    exported, trained = found.exported, _trained(training, samples)

    def carry(distribution: Distribution, pool: Pool) -> Outcome:
        with progress() as say:
            return carry_out(
                exported, distribution, pool, cluster, where, samples=samples, training=trained, progress=say
            )

    return adapt(
        found.distributions[0], found.pool, cluster, carry,
        rounds=rounds, statistics=statistics or Statistics(), pessimistic=pessimistic,
    )  # fmt: skip


def _trained(training: TrainingOptions | None, samples: int) -> Training | None:
    from tonnage.stages.training import Training

    if training is None:
        return None
    return Training(
        steps=max(samples // training.micro_batches, 3),
        micro_batches=training.micro_batches,
        optimizer=training.optimizer,
        recompute=training.recompute,
    )


def keep(done: Sequence[Round], statistics: Path | None, record: bool) -> None:
    """What the rounds told: as statistics for the next plan, and as rows of the database."""
    if statistics is not None:
        from tonnage.split.statistics_file import statistics_text

        statistics.write_text(statistics_text(done[-1].seen))
    if record:
        from tonnage.stages.measurements import keep_measurement

        for each in done:
            if each.outcome is not None:
                keep_measurement(each.outcome, each.distribution)


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

"""What of a campaign is still to be measured in this environment, given what the database has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tonnage.benchmark.campaign import Campaign, points
from tonnage.benchmark.results import Job
from tonnage.benchmark.work import Batch, all_jobs, arrange
from tonnage.store.database import Database
from tonnage.store.rows import Environment, Status

# Rows with these say nothing that a new measurement would not say better.
REPLACEABLE = (Status.FAILED, Status.INTERRUPTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Jobs by key, in batches in the order to take them. `replaced` are keys of rows that new ones replace."""

    jobs: Mapping[str, Job]
    batches: tuple[Batch, ...] = ()
    replaced: frozenset[str] = frozenset()
    skipped: int = 0
    failed_before: int = 0  # among those skipped

    @property
    def count(self) -> int:
        return len(self.jobs)


def make_plan(campaign: Campaign, database: Database, environment: Environment, again_failed: bool) -> Plan:
    """Leave out what is known: it worked, there was too little memory, or (unless asked for again) it failed."""
    failed = database.known_keys(environment, statuses=[Status.FAILED])
    known = database.known_keys(environment)
    skipped = known if again_failed else known | failed
    wanted_points = [point for point in points(campaign) if point.key not in skipped]
    wanted_layers = [layer for layer in campaign.layers if layer.key not in skipped]
    every = {job.key for job in all_jobs(campaign)}
    wanted: list[Job] = [*wanted_points, *wanted_layers]
    return Plan(
        jobs={job.key: job for job in wanted},
        batches=tuple(arrange(wanted_points, wanted_layers)),
        replaced=frozenset(database.known_keys(environment, statuses=REPLACEABLE) - known),
        skipped=len(every & skipped),
        failed_before=len(every & (failed - known) & skipped),
    )

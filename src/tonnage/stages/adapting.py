"""A distribution that is run again and again, and changed when what is observed is no longer what was predicted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tonnage.errors import UsageError
from tonnage.hardware import Cluster
from tonnage.split.devices import Fabric
from tonnage.split.distribution import Distribution
from tonnage.split.fabric_now import fabric_now
from tonnage.split.fabric_of import fabric_of
from tonnage.split.observations import PlaceStatistics, Statistics, merged
from tonnage.split.pool import Pool
from tonnage.split.replanning import Replan, replan
from tonnage.stages.carrying_out import Outcome, predicted_seconds
from tonnage.stages.hosts import LostWorkers
from tonnage.stages.observing import observed, speed_shares

TOLERANCE = 0.2  # by how much the period may be above the prediction before anything is changed
VALID_SECONDS = 3600.0
_REPLAN_SECONDS = 1.0
_NOTHING = Statistics()

Carry = Callable[[Distribution, Pool], Outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One run, all that runs have told by then, and the plan that came after it, if any."""

    distribution: Distribution
    outcome: Outcome | None  # None where a worker was lost in it
    failure: LostWorkers | None = None
    seen: Statistics = _NOTHING
    replanned: Replan | None = None
    replan_seconds: float = 0.0

    @property
    def predicted_seconds(self) -> float:
        assert self.distribution.metrics is not None
        return predicted_seconds(self.distribution.metrics)

    @property
    def measured_seconds(self) -> float | None:
        return None if self.outcome is None else self.outcome.beside[0].measured

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "stages": list(self.distribution.stages),
            "predicted_seconds": self.predicted_seconds,
            "measured_seconds": self.measured_seconds,
            "lost": [] if self.failure is None else list(self.failure.devices),
            "failure": None if self.failure is None else self.failure.message,
            "run": None if self.outcome is None else self.outcome.as_dict(),
            "replan": None if self.replanned is None else self.replanned.as_dict() | {"seconds": self.replan_seconds},
        }


def adapt(
    distribution: Distribution,
    pool: Pool,
    cluster: Cluster,
    carry: Carry,
    *,
    rounds: int,
    tolerance: float = TOLERANCE,
    statistics: Statistics = _NOTHING,
    pessimistic: bool = False,
) -> Iterator[Round]:
    """Run so many times, and between two rounds plan again where that can help, by all that was observed.

    It can where the period is above its prediction, where something is as good again as it was, and where a worker is lost.
    A device that is slower and sets no period is only remembered: nothing gets better by that. `statistics` are what is
    known at the beginning. Raises what the last round raises, and failures that are not of one device.
    """
    if distribution.replicas and rounds > 1:
        raise UsageError("a distribution with replicated stages cannot be re-planned", "split without replicas")
    seen = _NOTHING
    for number in range(rounds):
        is_last = number == rounds - 1
        done = _run(distribution, pool, carry)
        if done.failure is not None and (is_last or not _others(pool, done.failure)):
            raise done.failure
        new = _told(done, pool, cluster)
        seen = merged(seen, new)
        done = replace(done, seen=seen)
        planned = _Planned(pool.fabric, fabric_of(cluster), pessimistic)
        if not is_last and (_is_worse(done, tolerance) or planned.is_exceeded_by(new, tolerance)):
            done = _planned_again(done, pool, cluster, merged(statistics, seen), pessimistic)
        yield done
        if done.replanned is not None:  # with the old assignment where none is better, and what is now predicted for it
            distribution, pool = done.replanned.distribution, done.replanned.pool


def _run(distribution: Distribution, pool: Pool, carry: Carry) -> Round:
    try:
        return Round(distribution=distribution, outcome=carry(distribution, pool))
    except LostWorkers as error:
        if not error.devices:
            raise
        return Round(distribution=distribution, outcome=None, failure=error)


def _others(pool: Pool, failure: LostWorkers) -> bool:
    """Whether devices are left."""
    return any(device.name not in failure.devices for device in pool.fabric.devices)


def _told(done: Round, pool: Pool, cluster: Cluster) -> Statistics:
    now = time.time()
    if done.outcome is not None:
        return observed(done.outcome, pool.fabric, cluster, taken_at=now, valid_seconds=VALID_SECONDS)
    lost = () if done.failure is None else done.failure.devices
    entries = (PlaceStatistics(place=each, taken_at=now, valid_seconds=VALID_SECONDS, is_lost=True) for each in lost)
    return Statistics(places=tuple(entries))


def _is_worse(done: Round, tolerance: float) -> bool:
    measured = done.measured_seconds
    return measured is None or measured > done.predicted_seconds * (1 + tolerance)


@dataclass(frozen=True, slots=True)
class _Planned:
    """What devices and links were taken for, and what they are by the cluster file."""

    fabric: Fabric
    nominal: Fabric
    pessimistic: bool

    def is_exceeded_by(self, new: Statistics, tolerance: float) -> bool:
        """Whether a device or link that was planned with less than the file says has much of that again."""
        shares = speed_shares(self.fabric, self.nominal)
        speeds = [
            (min(entry.speed.value(self.pessimistic), 1.0), shares[entry.place]) for entry in new.places if entry.speed
        ]
        rates = [
            (entry.bandwidth_bytes_second.value(self.pessimistic), self.fabric.bytes_second(way))
            for entry in new.links
            if entry.bandwidth_bytes_second and (way := self.fabric.way_between(entry.source, entry.target))
        ]
        return any(now > before * (1 + tolerance) for now, before in (*speeds, *rates))


def _planned_again(done: Round, pool: Pool, cluster: Cluster, known: Statistics, pessimistic: bool) -> Round:
    """What is too old is no longer believed: a lost node is tried again."""
    begin = time.monotonic()
    found = replan(
        pool.network,
        fabric_now(cluster, known, now=time.time(), pessimistic=pessimistic, ignore_old=lambda _: None),
        done.distribution.assignment,
        training=pool.training,
        keep_going=lambda: time.monotonic() - begin < _REPLAN_SECONDS,
    )
    return replace(done, replanned=found, replan_seconds=time.monotonic() - begin)

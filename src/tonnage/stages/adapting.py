"""A distribution that is run again and again, and changed when what is observed is no longer what was predicted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tonnage.errors import Unreachable, UsageError
from tonnage.hardware import Cluster
from tonnage.split.cluster_problem import Training
from tonnage.split.distribution import Distribution
from tonnage.split.fabric_now import fabric_now
from tonnage.split.metrics import Metrics
from tonnage.split.observations import PlaceStatistics, Statistics, merged
from tonnage.split.pool import Pool
from tonnage.split.replanning import Replan, replan
from tonnage.stages.carrying_out import Outcome, observed

TOLERANCE = 0.2  # by how much the period may be above the prediction before anything is changed
_VALID_SECONDS = 3600.0
_REPLAN_SECONDS = 1.0

Carry = Callable[[Distribution, Pool], Outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One run, and the change that came after it, if any."""

    distribution: Distribution
    outcome: Outcome | None  # None where a node was lost in it
    replanned: Replan | None = None
    replan_seconds: float = 0.0


def adapt(
    distribution: Distribution,
    pool: Pool,
    cluster: Cluster,
    carry: Carry,
    *,
    rounds: int,
    training: Training | None = None,
    tolerance: float = TOLERANCE,
) -> Iterator[Round]:
    """Run; where the period is above its prediction, or a node is lost, plan again by what was observed, and go on."""
    if distribution.replicas:
        raise UsageError("a distribution with replicated stages cannot be re-planned", "split without replicas")
    seen = Statistics()
    for _ in range(rounds):
        outcome: Outcome | None = None
        try:
            outcome = carry(distribution, pool)
            new = observed(outcome, taken_at=time.time(), valid_seconds=_VALID_SECONDS)
            is_fine = _is_as_predicted(distribution.metrics, outcome, tolerance)
        except Unreachable as error:
            new, is_fine = _lost(error, distribution), False
        if is_fine:
            yield Round(distribution=distribution, outcome=outcome)
            continue
        seen = merged(seen, _by_nominal(new, pool, cluster))
        begin = time.monotonic()
        found = replan(
            pool.network,
            fabric_now(cluster, seen, now=time.time()),
            distribution.assignment,
            training=training,
            keep_going=lambda begin=begin: time.monotonic() - begin < _REPLAN_SECONDS,  # type: ignore[misc]
            keeper=distribution.stages[0],
        )
        yield Round(
            distribution=distribution, outcome=outcome, replanned=found, replan_seconds=time.monotonic() - begin
        )
        if found.pays:
            distribution, pool = found.distribution, found.pool


def _is_as_predicted(metrics: Metrics | None, outcome: Outcome, tolerance: float) -> bool:
    first = outcome.beside[0]
    return metrics is None or first.measured <= first.predicted * (1 + tolerance)


def _by_nominal(new: Statistics, pool: Pool, cluster: Cluster) -> Statistics:
    """Speeds relative to those of the cluster file: the fabric that was planned for may have had others already."""
    planned = {device.name: device.speed for device in pool.fabric.devices}
    places = []
    for entry in new.places:
        nominal = cluster.node(entry.place.partition("/")[0]).speed
        share = planned.get(entry.place, nominal) / nominal
        speed = entry.speed
        if speed is not None:
            speed = replace(speed, median=speed.median * share, p95=speed.p95 * share)
        places.append(replace(entry, speed=speed))
    return Statistics(places=tuple(places), links=new.links)


def _lost(error: Unreachable, distribution: Distribution) -> Statistics:
    """The device that the failure names is lost; another failure is none of ours."""
    lost = [device for device in distribution.stages if device in error.message]
    if not lost or len(distribution.stages) == 1:
        raise error
    now = time.time()
    return Statistics(
        places=(PlaceStatistics(place=lost[0], taken_at=now, valid_seconds=_VALID_SECONDS, is_lost=True),)
    )

"""Another distribution when devices or links have changed: from the last one, with what the change costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from math import inf
from typing import Any

from tonnage.errors import UsageError
from tonnage.split.cluster_problem import Training
from tonnage.split.devices import Fabric
from tonnage.split.distributing import best_for
from tonnage.split.distribution import Distribution
from tonnage.split.layout import Layout
from tonnage.split.network import Network
from tonnage.split.pool import Pool, make_pool
from tonnage.split.replan import Migration, migration
from tonnage.split.strong_parts import strong_parts
from tonnage.split.targets import Target

Assignment = Mapping[str | int, str]
KeepGoing = Callable[[], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replan:
    """The old distribution as it is now (infinite if it cannot go on), the new one, and the change."""

    old_period_seconds: float
    distribution: Distribution
    migration: Migration
    pool: Pool

    @property
    def pays(self) -> bool:
        return self.migration.seconds_until_ahead is not None

    def as_dict(self) -> dict[str, Any]:
        change = asdict(self.migration)
        change["moved_bytes"] = {f"{a}->{b}": count for (a, b), count in self.migration.moved_bytes.items()}
        return {
            "old_period_seconds": self.old_period_seconds if self.old_period_seconds < inf else None,
            "pays": self.pays,
            "migration": change,
            "distribution": self.distribution.as_dict(),
        }


def replan(
    network: Network,
    fabric: Fabric,
    old: Assignment,
    *,
    training: Training | None = None,
    keep_going: KeepGoing = lambda: True,
    restart_seconds: float = 0.0,
    keeper: str | None = None,
) -> Replan:
    """The best period on the fabric as it is now, looked for from the old distribution on."""
    _check(network, old)
    pool = make_pool(network, fabric, training=training, keep_going=keep_going, start=_stages(network, old), wide=False)
    before = _old_period(old, pool)
    distribution = best_for(pool, Target.THROUGHPUT)
    weights = {operation.id: operation.weight_bytes + operation.state_bytes for operation in network.operations}
    change = migration(
        old, distribution.assignment, weights, fabric,
        old_period_seconds=before, new_period_seconds=distribution.value, restart_seconds=restart_seconds, keeper=keeper,
    )  # fmt: skip
    return Replan(old_period_seconds=before, distribution=distribution, migration=change, pool=pool)


def _check(network: Network, old: Assignment) -> None:
    missing = [operation.id for operation in network.operations if not old.get(operation.id)]
    if missing:
        raise UsageError(
            f"the last distribution says nothing of operation {missing[0]}",
            "is it of this network, and as exported now?",
        )


def _old_period(old: Assignment, pool: Pool) -> float:
    """The old one is in the pool as well: where nothing is better, nothing changes."""
    position = {device.name: place for place, device in enumerate(pool.fabric.devices)}
    names = [old[operation.id] for operation in pool.network.operations]
    if any(name not in position for name in names):
        return inf
    return pool.add(Layout(tuple(position[name] for name in names))).period_seconds


def _stages(network: Network, old: Assignment) -> list[list[int]]:
    """Positions of the operations on each device, in the order of the pipeline."""
    names = list(dict.fromkeys(old[operation.id] for operation in network.operations))
    number = {name: index for index, name in enumerate(names)}
    places = [number[old[operation.id]] for operation in network.operations]
    followers: list[set[int]] = [set() for _ in names]
    for producer, consumer in network.edges:
        followers[places[producer]].add(places[consumer])
    order, _ = strong_parts(followers)
    stages: list[list[int]] = [[] for _ in names]
    for position, place in enumerate(places):
        stages[place].append(position)
    return [stages[place] for place in sorted(range(len(names)), key=lambda each: order[each])]

"""When another distribution pays: what has to move to get there, how long that takes, and when it has caught up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, isfinite

from tonnage.errors import UsageError
from tonnage.split.devices import Fabric

Pair = tuple[str, str]
Assignment = Mapping[str | int, str]  # device by the operation's id


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """From one distribution to another, while nothing runs. None where the new one never gets ahead."""

    moved_bytes: Mapping[Pair, int] = field(hash=False)  # by the devices that they leave and reach
    seconds: float
    samples_until_ahead: float | None  # of the old distribution, from the moment of the change
    seconds_until_ahead: float | None

    @property
    def total_bytes(self) -> int:
        return sum(self.moved_bytes.values())


def migration(
    old: Assignment,
    new: Assignment,
    weight_bytes: Mapping[str | int, int],
    fabric: Fabric,
    *,
    old_period_seconds: float,
    new_period_seconds: float,
    restart_seconds: float = 0.0,
    keeper: str | None = None,
) -> Migration:
    """What it costs to go from `old` to `new`, and when it pays.

    An infinite period is one of a distribution that cannot go on. Weights of a device that is lost come from the device
    `keeper`, which has all of them.
    """
    if not new_period_seconds > 0 or not old_period_seconds > 0 or not isfinite(new_period_seconds):
        raise UsageError(f"periods of {old_period_seconds:g} s and {new_period_seconds:g} s cannot be compared")
    moved = _moved_bytes(old, new, weight_bytes, {device.name for device in fabric.devices}, keeper)
    pause = migration_seconds(moved, fabric) + restart_seconds
    ahead = _seconds_until_ahead(pause, old_period_seconds, new_period_seconds)
    return Migration(
        moved_bytes=moved,
        seconds=pause,
        samples_until_ahead=None if ahead is None else ahead / old_period_seconds,
        seconds_until_ahead=ahead,
    )


def migration_seconds(moved_bytes: Mapping[Pair, int], fabric: Fabric) -> float:
    """All at once: the lane that has most to carry decides, and the longest latency comes on top."""
    position = {device.name: index for index, device in enumerate(fabric.devices)}
    busy, latency = [0.0] * len(fabric.lanes), 0.0
    for (source, target), nbytes in moved_bytes.items():
        way = fabric.ways.get((position[source], position[target]))
        if way is None:
            raise UsageError(f"no way leads from {source} to {target}", "weights cannot be moved there")
        latency = max(latency, way.latency_seconds)
        for lane in way.lanes:
            busy[lane] += nbytes / fabric.lanes[lane].bytes_second
    return max(busy, default=0.0) + latency


def _moved_bytes(
    old: Assignment, new: Assignment, weight_bytes: Mapping[str | int, int], there: set[str], keeper: str | None
) -> dict[Pair, int]:
    moved: dict[Pair, int] = {}
    for operation, target in new.items():
        if operation not in old:
            raise UsageError(f"the old distribution has no operation {operation!r}", "are they of one network?")
        source, nbytes = old[operation], weight_bytes.get(operation, 0)
        if target not in there:
            raise UsageError(f"operation {operation!r} goes to {target}, which is not there")
        if source == target or not nbytes:
            continue
        if source not in there:
            source = _keeper(keeper, there, source)
        if source != target:
            moved[source, target] = moved.get((source, target), 0) + nbytes
    return moved


def _keeper(keeper: str | None, there: set[str], lost: str) -> str:
    if keeper not in there or keeper is None:
        raise UsageError(f"{lost} is lost, and no device keeps its weights", "name a device that has all of them")
    return keeper


def _seconds_until_ahead(pause: float, old_period: float, new_period: float) -> float | None:
    """Until `(t - pause) / new_period` is `t / old_period`."""
    if old_period == inf:
        return pause
    return pause * old_period / (old_period - new_period) if new_period < old_period else None

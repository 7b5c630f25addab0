"""What was observed of devices and links, when, and for how long it holds; several sources made into one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

from tonnage.errors import UsageError

CLOCKS_DIFFER_SECONDS = 60.0  # what the clocks of two machines may be apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The median of several observations, and what 95 % of them were as good as."""

    median: float
    p95: float

    def value(self, pessimistic: bool) -> float:
        return self.p95 if pessimistic else self.median


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceStatistics:
    """Of the processors of a node (`box-0`) or of one GPU (`box-0/gpu3`); None where nobody looked."""

    FIGURES: ClassVar = ("load", "available_bytes", "speed")

    place: str
    taken_at: float  # seconds since 1970, UTC
    valid_seconds: float
    is_lost: bool = False
    load: float | None = None  # 0 to 1: how much of it is in use
    available_bytes: int | None = None
    speed: Spread | None = None  # times the nominal one; what the load takes away is included

    @property
    def name(self) -> str:
        return self.place


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkStatistics:
    """Of the way from one place to another, whatever is between them; None where nobody looked."""

    FIGURES: ClassVar = ("bandwidth_bytes_second", "latency_seconds")

    source: str
    target: str
    taken_at: float
    valid_seconds: float
    is_lost: bool = False
    bandwidth_bytes_second: Spread | None = None
    latency_seconds: Spread | None = None

    @property
    def name(self) -> str:
        return f"{self.source}->{self.target}"


ObservationT = TypeVar("ObservationT", PlaceStatistics, LinkStatistics)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Any number of observations; several of one place or link may tell different things of it."""

    places: tuple[PlaceStatistics, ...] = ()
    links: tuple[LinkStatistics, ...] = ()


def merged(*sources: Statistics) -> Statistics:
    """All that the sources tell; where two tell the same, the newest counts."""
    return Statistics(
        places=_newest(entry for source in sources for entry in source.places),
        links=_newest(entry for source in sources for entry in source.links),
    )


def current(statistics: Statistics, *, now: float, told: Callable[[str], None] | None = None) -> Statistics:
    """One observation for each place and link. An old one is refused by name and age, or left out and `told`."""
    new = merged(statistics)
    return Statistics(places=_joined(_fresh(new.places, now, told)), links=_joined(_fresh(new.links, now, told)))


def _newest(entries: Iterable[ObservationT]) -> tuple[ObservationT, ...]:
    """The newest first, without those of which every figure is told by a newer one; a loss ends all before it."""
    known: dict[str, set[str]] = {}
    kept = []
    for entry in sorted(entries, key=lambda each: each.taken_at, reverse=True):
        figures = set(entry.FIGURES if entry.is_lost else _told_by(entry))
        if entry.name not in known or (figures - known[entry.name] and not entry.is_lost):
            kept.append(entry)
        known.setdefault(entry.name, set()).update(figures)
    return tuple(kept)


def _told_by(entry: PlaceStatistics | LinkStatistics) -> list[str]:
    return [name for name in entry.FIGURES if getattr(entry, name) is not None]


def _fresh(entries: tuple[ObservationT, ...], now: float, told: Callable[[str], None] | None) -> Iterable[ObservationT]:
    for entry in entries:
        age = now - entry.taken_at
        if age < -CLOCKS_DIFFER_SECONDS:
            raise UsageError(
                f"the statistics of {entry.name} are from the future, by {-age:.0f} s", "set the clocks of the machines"
            )
        if age <= entry.valid_seconds:
            yield entry
            continue
        sentence = f"the statistics of {entry.name} are {age:.0f} s old and were valid for {entry.valid_seconds:g} s"
        if told is None:
            raise UsageError(sentence, "take new ones: tonnage cluster statistics")
        told(f"{sentence}; left out")


def _joined(entries: Iterable[ObservationT]) -> tuple[ObservationT, ...]:
    """From the newest to the oldest: a figure that the newer ones lack is taken from the older."""
    found: dict[str, ObservationT] = {}
    for entry in entries:
        newer = found.get(entry.name, entry)
        missing = {name: getattr(entry, name) for name in newer.FIGURES if getattr(newer, name) is None}
        found[entry.name] = replace(newer, **missing)
    return tuple(found.values())

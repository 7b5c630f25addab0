"""Preset rules: ranges of indicators, what follows from them, and why. Declarative: nothing in a rule is executed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Literal, TypeAlias

from tonnage.configure.configuration import Communication

Quality = Literal["speed", "host_bytes_second", "loading_speed", "gpu_count", "cpu_cores"]
Fields: TypeAlias = Mapping[str, float | None]  # None: not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """At least one number and less than another. A field that is not known is in no range."""

    field: str
    at_least: float | None = None
    below: float | None = None

    def holds(self, fields: Fields) -> bool:
        value = fields[self.field]
        if value is None:
            return False
        return (self.at_least is None or value >= self.at_least) and (self.below is None or value < self.below)


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """A number, or `times` a field and some more; rounded up."""

    plus: float = 0.0
    times: float = 0.0
    field: str | None = None

    def of(self, fields: Fields) -> int:
        value = 0.0 if self.field is None else fields[self.field] or 0.0
        return ceil(self.times * value + self.plus - 1e-9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Consequence:
    """What a rule decides; None is what it leaves to others."""

    communication: Communication | None = None
    pcie_lanes: int | None = None
    pinned_memory: bool | None = None
    loader_workers: Amount | None = None
    cpu_cores: Amount | None = None
    memory_bytes: Amount | None = None
    sockets: Literal["fewest", "all"] | None = None
    order: tuple[Quality, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    name: str
    when: tuple[Range, ...]
    then: Consequence
    reason: str

    def holds(self, fields: Fields) -> bool:
        return all(part.holds(fields) for part in self.when)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the rules decide together, and the rule that decided each of it."""

    then: Consequence
    by: Mapping[str, Rule] = field(hash=False)

    def reason(self, about: str) -> str:
        rule = self.by.get(about)
        return f"rule {rule.name}: {rule.reason}" if rule else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    version: str
    rules: tuple[Rule, ...]

    def decide(self, fields: Fields) -> Decision:
        """For each consequence, that of the first rule that holds and speaks of it."""
        holding = [rule for rule in self.rules if rule.holds(fields)]
        by: dict[str, Rule] = {}
        for name in Consequence.__dataclass_fields__:
            first = next((rule for rule in holding if getattr(rule.then, name) is not None), None)
            if first is not None:
                by[name] = first
        return Decision(then=Consequence(**{name: getattr(rule.then, name) for name, rule in by.items()}), by=by)

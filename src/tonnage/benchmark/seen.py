"""Which measurements a model was fitted to: who judges it should know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_MARK = 8  # characters of a key, which are 32 bits of a digest: one in 4000 is mistaken once a million are known


@dataclass(frozen=True, slots=True)
class Seen:
    """Measurements by GPU and the beginning of their keys: the same point on another GPU is another measurement."""

    marks: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def of(cls, measurements: Iterable[tuple[str, str]]) -> Seen:
        """Pairs of GPU and key."""
        return cls(frozenset((gpu, key[:_MARK]) for gpu, key in measurements))

    @classmethod
    def by(cls, fitted: Mapping[str, Any]) -> Seen:
        """What `TimeModel.fitted` says; a model that says nothing counts as if it had seen nothing."""
        plain = fitted.get("seen")
        groups = plain.items() if isinstance(plain, Mapping) else ()
        return cls(frozenset((gpu, mark) for gpu, marks in groups for mark in str(marks).split()))

    def as_dict(self) -> dict[str, str]:
        """One line of marks for each GPU."""
        gpus = sorted({gpu for gpu, _ in self.marks})
        return {gpu: " ".join(sorted(mark for name, mark in self.marks if name == gpu)) for gpu in gpus}

    def __contains__(self, measurement: tuple[str, str]) -> bool:
        gpu, key = measurement
        return (gpu, key[:_MARK]) in self.marks

    def __or__(self, other: Seen) -> Seen:
        return Seen(self.marks | other.marks)

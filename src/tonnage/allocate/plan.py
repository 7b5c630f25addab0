"""Who runs where and when, how good that is, and how good it could be at best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A task on its GPUs from start to end. `beside` are those that share GPUs with it at some time."""

    task: str
    gpus: tuple[str, ...]
    start_seconds: float
    end_seconds: float
    beside: tuple[str, ...] = ()
    reason: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "gpus": list(self.gpus),
            "start_seconds": self.start_seconds,
            "end_seconds": self.end_seconds,
            "beside": list(self.beside),
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplaced:
    task: str
    reason: str

    def as_dict(self) -> dict[str, str]:
        return {"task": self.task, "reason": self.reason}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`bound` is below the value of every plan; `gap` is how far above it this one is."""

    objective: str
    value: float
    bound: float
    assignments: tuple[Assignment, ...]
    unplaced: tuple[Unplaced, ...] = ()
    solver: str = ""
    solver_seconds: float = 0.0
    one_more: Mapping[str, float] = field(default_factory=dict, hash=False)  # what a further GPU of a model would bring

    @property
    def gap(self) -> float:
        if self.value <= 0.0:
            return 0.0
        return self.value / self.bound - 1.0 if self.bound > 0 else float("inf")

    @property
    def makespan_seconds(self) -> float:
        return max((each.end_seconds for each in self.assignments), default=0.0)

    def as_dict(self) -> dict[str, Any]:
        return {
            "objective": self.objective,
            "value": self.value,
            "bound": self.bound,
            "gap": None if self.gap == float("inf") else self.gap,
            "assignments": [each.as_dict() for each in self.assignments],
            "unplaced": [each.as_dict() for each in self.unplaced],
            "solver": self.solver,
            "solver_seconds": self.solver_seconds,
            "makespan_seconds": self.makespan_seconds,
            "one_more": dict(self.one_more),
        }

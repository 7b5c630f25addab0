"""What every estimation model offers, so that any two can be compared on the same rows.

A kernel-level model reads the Trace of a query, a regression its features; a model that lacks what it needs raises
`UsageError`. Quantities are named as the columns of the benchmark database, such as `step_seconds`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tonnage.errors import UsageError
from tonnage.estimate.cluster_features import Features
from tonnage.hardware import Gpu
from tonnage.program.trace import Trace


@dataclass(frozen=True, slots=True)
class Prediction:
    """A quantity with the bounds that hold it in 9 of 10 cases; `extrapolated` beyond what was measured."""

    value: float
    low: float
    high: float
    extrapolated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A program to predict: its Trace, or only what is known about its structure, or both."""

    trace: Trace | None = None
    features: Features | None = None

    def __post_init__(self) -> None:
        if self.trace is None and self.features is None:
            raise UsageError("a query needs a trace or the features of a network")


class EstimationModel(Protocol):
    """Predicts from a query and a GPU; pure, and read from a small data file."""

    @property
    def name(self) -> str: ...

    def predict(self, query: Query, gpu: Gpu) -> dict[str, Prediction]: ...

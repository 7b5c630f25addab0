"""How well models predict what they have not seen: medians, ninetieth percentiles, and how often bounds held the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tonnage.estimate.model import Prediction

ALL = "all"  # families


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How well one model predicts one quantity on rows that it had not seen."""

    model: str
    family: str  # "all" for all of them
    quantity: str
    rows: int
    median: float
    ninetieth: float
    covered: float  # share of rows inside the 90 % interval

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One step: what was measured of it and what a model had said, by quantity."""

    family: str
    measured: Mapping[str, float]
    predicted: Mapping[str, Prediction]


def scores_of(model: str, outcomes: Sequence[Outcome], quantities: Sequence[str]) -> list[Score]:
    """For all families together and for each; quantities that nobody measured are left out."""
    families = [ALL, *sorted({outcome.family for outcome in outcomes})]
    scores = (
        _score(model, family, quantity, [o for o in outcomes if family in (ALL, o.family)])
        for family in families
        for quantity in quantities
    )
    return [score for score in scores if score is not None]


def _score(model: str, family: str, quantity: str, outcomes: Sequence[Outcome]) -> Score | None:
    pairs = [(outcome.measured.get(quantity), outcome.predicted.get(quantity)) for outcome in outcomes]
    known = [(truth, prediction) for truth, prediction in pairs if truth and prediction is not None]
    if not known:
        return None
    errors = np.array([abs(prediction.value / truth - 1) for truth, prediction in known])
    inside = [prediction.low <= truth <= prediction.high for truth, prediction in known]
    return Score(
        model=model, family=family, quantity=quantity, rows=len(known), median=float(np.median(errors)),
        ninetieth=float(np.percentile(errors, 90)), covered=float(np.mean(inside)),
    )  # fmt: skip

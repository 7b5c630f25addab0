"""The two-phase estimator: a cluster of measured rows around the query, then linear regression inside it.

A `ClusterModel` is its reference rows and one conformal quantile for each target: plain data, evaluated with numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tonnage.errors import InvalidFile, UsageError
from tonnage.estimate.cluster_features import (
    DEVICE_VARIABLES,
    HOST_VARIABLES,
    MEMORY_VARIABLES,
    VARIABLES,
    Features,
    variables_on,
)
from tonnage.estimate.cluster_fit import Array, Flags, Law, fit_law, fit_sides
from tonnage.estimate.cluster_rows import BYTES, SECONDS, TARGETS, Rows
from tonnage.estimate.cluster_selection import LEAST_ROWS, Cluster, Constraints, Criterion, Place, comparable, select
from tonnage.estimate.model import Prediction, Query
from tonnage.estimate.trace_features import features_of_trace
from tonnage.hardware import Gpu

VERSION = 1
_POSITIONS = {name: position for position, name in enumerate(VARIABLES)}
_BOTH_VARIABLES = tuple(dict.fromkeys((*DEVICE_VARIABLES[:-1], *HOST_VARIABLES)))  # the constant comes last
# How many rows the lines of a larger set count for when a smaller one is fitted.
_ALL_ROWS_STRENGTH, _COMPARABLE_STRENGTH = 1.0, 4.0
_LEAST_SPREAD = 0.01


class Matrices(NamedTuple):
    """Variables of the two lines of a law; a law without a device line has an empty second one."""

    host: Array
    device: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class ClusterModel:
    """Reference rows, and for each target how many spreads of a cluster hold 9 of 10 unseen rows."""

    rows: Rows
    quantiles: Mapping[str, float]
    criterion: Criterion = Criterion.LINEAR
    constraints: Constraints = field(default_factory=Constraints)
    coverage: float = 0.9
    _laws: dict[tuple[object, ...], Law] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        return "cluster"

    def predict(self, query: Query, gpu: Gpu) -> dict[str, Prediction]:
        """Every target that enough comparable rows have; backward and optimizer only of training."""
        place = place_of(query, gpu)
        cluster = self._select(place)
        predictions: dict[str, Prediction] = {}
        for target in TARGETS:
            known = np.isfinite(self.rows.targets[target])
            if known[cluster.indices].sum() >= LEAST_ROWS:
                step = predictions["step_seconds"].value if predictions else 1.0
                predictions[target] = self._predict(target, place, cluster, known, step)
        return _within(predictions, gpu)

    def select(self, query: Query, gpu: Gpu) -> Cluster:
        """Phase one alone: which rows an answer rests on, and which variables move among them."""
        return self._select(place_of(query, gpu))

    def with_criterion(self, criterion: Criterion, constraints: Constraints | None = None) -> ClusterModel:
        """The same rows for another criterion or other constraints."""
        return replace(self, criterion=criterion, constraints=constraints or self.constraints, _laws={})

    def _select(self, place: Place) -> Cluster:
        prior = self._comparable_law("step_seconds", place)
        return select(
            self.rows,
            place,
            lambda indices: self._fit("step_seconds", indices, prior, _COMPARABLE_STRENGTH),
            self.criterion,
            self.constraints,
        )

    def _predict(self, target: str, place: Place, cluster: Cluster, known: Flags, step: float) -> Prediction:
        law = cluster.law
        if target != "step_seconds":
            indices = cluster.indices[known[cluster.indices]]
            law = self._fit(target, indices, self._comparable_law(target, place), _COMPARABLE_STRENGTH)
        value = self._value(target, law, cluster.law, place, step)
        margin = self.quantiles.get(target, 2.0) * spread(law) * (1.0 + np.log(cluster.beyond))
        return Prediction(value, value * float(np.exp(-margin)), value * float(np.exp(margin)), not cluster.spans)

    def _value(self, target: str, law: Law, step_law: Law, place: Place, step: float) -> float:
        matrices = _matrices(target, place.vector[None, :], np.array([step]))
        if target in SECONDS and target != "step_seconds":
            return float(law.on_side(*matrices, step_law.is_host_bound(*matrices))[0])
        return float(law.at(*matrices)[0])

    def _comparable_law(self, target: str, place: Place) -> Law:
        """Of all rows that agree with the query in the fixed conditions; near the law of all rows where these are few."""
        fixed = self.constraints.fixed
        agree = comparable(self.rows, place, fixed)
        key = (target, *(place.labels[label] for label in sorted(fixed)))
        if key not in self._laws:
            everything = self._law_of_all(target)
            found = np.flatnonzero(agree & np.isfinite(self.rows.targets[target]))
            self._laws[key] = self._fit(target, found, everything, _ALL_ROWS_STRENGTH) if len(found) else everything
        return self._laws[key]

    def _law_of_all(self, target: str) -> Law:
        if (target,) not in self._laws:
            known = np.flatnonzero(np.isfinite(self.rows.targets[target]))
            if len(known) < LEAST_ROWS:
                raise UsageError(f"{len(known)} measured rows are too few: the regression needs at least {LEAST_ROWS}")
            self._laws[(target,)] = self._fit(target, known, None, 0.0)
        return self._laws[(target,)]

    def _fit(self, target: str, indices: npt.NDArray[np.intp], prior: Law | None, strength: float) -> Law:
        rows = self.rows
        matrices = _matrices(target, rows.variables[indices], rows.targets["step_seconds"][indices])
        # Only times have two sides; sizes and energy are one line.
        side = rows.is_host_bound[indices] if target in SECONDS else np.ones(len(indices), dtype=bool)
        fit = fit_law if target == "step_seconds" else fit_sides
        return fit(*matrices, rows.targets[target][indices], side, prior, strength)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "format": "tonnage cluster model",
            "version": VERSION,
            "coverage": self.coverage,
            "criterion": str(self.criterion),
            "fixed": sorted(self.constraints.fixed),
            "quantiles": {name: float(f"{value:.6g}") for name, value in self.quantiles.items()},
            "rows": self.rows.as_dict(),
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> ClusterModel:
        """Raises `InvalidFile`."""
        if plain.get("format") != "tonnage cluster model" or plain.get("version") != VERSION:
            raise InvalidFile(f"this is not a cluster model of version {VERSION}")
        return cls(
            rows=Rows.from_dict(plain["rows"]),
            quantiles=dict(plain["quantiles"]),
            criterion=Criterion(plain["criterion"]),
            constraints=Constraints(fixed=frozenset(plain["fixed"])),
            coverage=plain["coverage"],
        )


def place_of(query: Query, gpu: Gpu) -> Place:
    """Where a query is in the parameter space; the features of a trace are computed where none are given."""
    features = query.features
    if features is None:
        assert query.trace is not None  # a query has one of both
        features = features_of_trace(query.trace)
    return Place(labels=labels_of(features, gpu.name), variables=variables_on(features, gpu))


def labels_of(features: Features, gpu: str, family: str = "") -> dict[str, str]:
    return {
        "family": family,
        "kind": features.kind,
        "mode": features.mode,
        "precision": features.precision,
        "gpu": gpu,
    }


def spread(law: Law) -> float:
    """How far off the cluster's own rows are when left out: 4 of 5 are nearer."""
    off = np.abs(np.log1p(np.maximum(law.host.left_out, -0.9)))
    return max(float(np.quantile(off, 0.8)), _LEAST_SPREAD)


def _matrices(target: str, variables: Array, step_seconds: Array) -> Matrices:
    def columns(names: tuple[str, ...]) -> Array:
        return variables[:, [_POSITIONS[name] for name in names]]

    if target in SECONDS:
        return Matrices(columns(HOST_VARIABLES), columns(DEVICE_VARIABLES))
    if target in BYTES:
        return Matrices(columns(MEMORY_VARIABLES), columns(()))
    both = columns(_BOTH_VARIABLES)
    if target == "power_watts":
        # Power is linear in utilisation: the share of a step in which each kind of work would run at the peak.
        both = both / step_seconds[:, None]
        both[:, -1] = 1.0
    return Matrices(both, columns(()))


def _within(predictions: dict[str, Prediction], gpu: Gpu) -> dict[str, Prediction]:
    """No GPU draws more than its limit."""
    power = predictions.get("power_watts")
    if power is None:
        return predictions
    limit = float(gpu.tdp_watts)
    capped = Prediction(min(power.value, limit), min(power.low, limit), min(power.high, limit), power.extrapolated)
    return predictions | {"power_watts": capped}

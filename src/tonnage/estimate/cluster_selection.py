"""Phase one of the cluster regression: which measured rows are comparable with a query, and which variables move.

Rows that agree with the query in the fixed conditions are ordered by their distance in scaled log-space. Clusters grow from
the nearest rows outwards; those that hold the query between their rows are candidates; the criterion chooses one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from tonnage.errors import UsageError
from tonnage.estimate.cluster_features import DEVICE_VARIABLES, HOST_VARIABLES, VARIABLES
from tonnage.estimate.cluster_fit import Array, Flags, Law
from tonnage.estimate.cluster_rows import Rows

LEAST_ROWS = 12
_FIRST_SIZE, _GROWTH = 16, 1.5
_OTHER_KIND = 2.0  # the distance of another kind of network, in standard deviations
_REACH = 1.5  # a variable may exceed all rows of its cluster by this factor before the answer is an extrapolation
_ACCEPTABLE = 1.25  # how much worse than the best a cluster may fit and still be chosen for its resources
_HALF = ("bfloat16", "float16")
_WORK_VARIABLES = tuple(dict.fromkeys((*HOST_VARIABLES, *DEVICE_VARIABLES)))
# Distances: the offset is what hardly matters, so that nothing and almost nothing are near each other.
_COORDINATES = {
    "device_seconds": 1e-5,
    "operator_calls": 1.0,
    "recurrent_positions": 10.0,
    "optimizer_seconds": 1e-5,
    "h2d_seconds": 1e-5,
}


class Criterion(StrEnum):
    """What to prefer among clusters that hold the query."""

    LINEAR = "keep-linear"  # the one in which left-out rows are predicted best
    RESOURCES = (
        "minimise-resources"  # of those that fit almost as well, the one whose rows take the fewest byte-seconds
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """What the user allows: conditions that must not change, and limits that a configuration must keep."""

    fixed: frozenset[str] = frozenset({"mode", "precision"})  # also possible: "kind", "gpu", "family"
    max_step_seconds: float | None = None
    max_bytes: int | None = None
    max_gpus: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the query is in the parameter space."""

    labels: Mapping[str, str]
    variables: Mapping[str, float]

    @property
    def vector(self) -> Array:
        return np.array([self.variables[name] for name in VARIABLES])


@dataclass(frozen=True, eq=False, kw_only=True)
class Cluster:
    """The chosen rows, the variables that move among them, and how far the query lies beyond them (1 for inside)."""

    indices: npt.NDArray[np.intp]
    variables: tuple[str, ...]
    beyond: float
    law: Law
    error: float  # root mean square of the relative errors of left-out rows

    @property
    def spans(self) -> bool:
        return self.beyond <= _REACH


Fit = Callable[[npt.NDArray[np.intp]], Law]


def comparable(rows: Rows, place: Place, fixed: frozenset[str]) -> Flags:
    """Rows that agree with the query in all fixed conditions; both half precisions count as one."""
    agree = np.ones(len(rows), dtype=bool)
    for label in fixed:
        wanted = place.labels.get(label)
        if wanted is None:
            raise UsageError(f"{label!r} cannot be fixed", f"fixed can be {', '.join(sorted(place.labels))}")
        values = rows.column(label)
        same = np.isin(values, _HALF) if wanted in _HALF else values == wanted
        agree &= same
    return agree


def select(rows: Rows, place: Place, fit: Fit, criterion: Criterion, constraints: Constraints) -> Cluster:
    """The cluster for a query; raises `UsageError` when too few rows are comparable. `fit` is for step seconds."""
    usable = comparable(rows, place, constraints.fixed) & np.isfinite(rows.targets["step_seconds"])
    found = np.flatnonzero(usable)
    if len(found) < LEAST_ROWS:
        words = ", ".join(place.labels[label] for label in sorted(constraints.fixed))
        raise UsageError(
            f"only {len(found)} measured rows are comparable ({words}), but the regression needs at least {LEAST_ROWS}",
            "measure more sample workloads, or fix fewer conditions",
        )
    nearest = found[np.argsort(distances(rows, place, found), kind="stable")]
    candidates = [_cluster(rows, place, nearest[:size], fit) for size in _sizes(rows, place, nearest)]
    return _choose(rows, candidates, criterion)


def distances(rows: Rows, place: Place, indices: npt.NDArray[np.intp]) -> Array:
    """Of rows to the query, in standard deviations of the logarithms of what is asked of host and device."""
    logs, there = _coordinates(rows.variables), _coordinates(place.vector[None, :])
    scale = np.maximum(logs.std(axis=0), 1e-9)
    other_kind = rows.column("kind")[indices] != place.labels["kind"]
    apart: Array = np.sqrt((((logs[indices] - there) / scale) ** 2).sum(axis=1)) + _OTHER_KIND * other_kind
    return apart


def _coordinates(variables: Array) -> Array:
    columns = {name: variables[:, VARIABLES.index(name)] for name in VARIABLES}
    columns["device_seconds"] = sum(
        (columns[name] for name in DEVICE_VARIABLES if name.endswith("_seconds")), np.zeros(len(variables))
    )
    return np.stack([np.log(columns[name] + offset) for name, offset in _COORDINATES.items()], axis=1)


def _sizes(rows: Rows, place: Place, nearest: npt.NDArray[np.intp]) -> list[int]:
    """Sizes of clusters that hold the query; all comparable rows where no smaller cluster does."""
    sizes, size = [], float(_FIRST_SIZE)
    while size < len(nearest):
        if beyond(rows, place, nearest[: int(size)]) <= _REACH:
            sizes.append(int(size))
        size *= _GROWTH
    return [*sizes, len(nearest)]


def beyond(rows: Rows, place: Place, indices: npt.NDArray[np.intp]) -> float:
    """The largest factor by which a variable of the query exceeds every row; 1 where none does.

    Below the smallest row a line with no negative coefficient cannot go far wrong: its constant is what remains.
    """
    most = rows.matrix(_WORK_VARIABLES)[indices].max(axis=0)
    asked = np.array([place.variables[name] for name in _WORK_VARIABLES])
    # What asks for less than a millionth of a second, or for less than one call, is not a variable of the query.
    matters = asked > np.array([1e-6 if name.endswith("_seconds") else 1.0 for name in _WORK_VARIABLES])
    factors = asked[matters] / np.maximum(most[matters], 1e-6)
    return float(max(factors.max(initial=1.0), 1.0))


def _cluster(rows: Rows, place: Place, indices: npt.NDArray[np.intp], fit: Fit) -> Cluster:
    law = fit(indices)
    matrix = rows.variables[indices]
    moves = matrix.std(axis=0) > 0.01 * np.abs(matrix).mean(axis=0)
    return Cluster(
        indices=indices,
        variables=tuple(name for name, does in zip(VARIABLES, moves.tolist(), strict=True) if does),
        beyond=beyond(rows, place, indices),
        law=law,
        error=float(np.sqrt(np.mean(np.minimum(np.abs(law.host.left_out), 0.6) ** 2))),
    )


def _choose(rows: Rows, candidates: list[Cluster], criterion: Criterion) -> Cluster:
    best = min(candidates, key=lambda cluster: cluster.error)
    if criterion is Criterion.LINEAR:
        return best
    acceptable = [cluster for cluster in candidates if cluster.error <= _ACCEPTABLE * best.error]
    return min(acceptable, key=lambda cluster: byte_seconds(rows, cluster.indices))


def byte_seconds(rows: Rows, indices: npt.NDArray[np.intp]) -> float:
    """Resource consumption: geometric mean over the rows of the memory they hold times how long a step holds it."""
    logs = np.log(rows.targets["step_seconds"][indices]) + np.log(rows.targets["allocated_bytes"][indices])
    return float(np.exp(np.nanmean(logs)))

"""Fits the constants of the kernel model to measured works: bounded, robust, drawn towards what was known before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tonnage.benchmark.kernel_samples import Sample
from tonnage.errors import MissingDependency
from tonnage.estimate.kernels.constants import CLASSES, PUBLIC, Constants, KindConstants, classes_of
from tonnage.estimate.kernels.rates import Rates
from tonnage.estimate.kernels.roofline import seconds
from tonnage.estimate.kernels.table import Floats, Integers, WorkTable

# Between which values a constant makes sense.
BOUNDS: Mapping[str, tuple[float, float]] = {
    "arithmetic": (0.005, 1.6), "bandwidth": (0.02, 1.05), "cache": (0.02, 1.0), "launch_cycles": (300.0, 40000.0),
    "overlap": (0.02, 1.0), "tile_overhead": (0.5, 100.0), "depth_overhead": (2.0, 800.0), "warp_overhead": (0.05, 6.0),
    "tail": (0.05, 1.0), "split_cycles": (500.0, 60000.0), "choice": (0.02, 0.6), "writes": (0.8, 4.0),
    "pages": (0.005, 2.0), "odd": (0.01, 4.0), "winograd": (0.2, 1.0), "winograd_large": (0.2, 1.2),
    "conversion": (0.05, 3.0), "step_cycles": (2.0, 60000.0), "row_cycles": (0.001, 3.0), "again": (0.02, 4.0),
}  # fmt: skip
_TILE = (
    "arithmetic", "tile_overhead", "depth_overhead", "warp_overhead", "tail", "split_cycles", "overlap", "bandwidth",
    "launch_cycles", "choice",
)  # fmt: skip
_FLOW = ("bandwidth", "cache", "launch_cycles", "overlap")
# Short kernels are noise and hidden by the host: a kernel of this length counts half.
HALF_WEIGHT_SECONDS = 5e-6
_MOST_ROWS = 700  # of one class on one GPU: more would only take longer
_ROBUST = 0.2
_SHRUNK_BY = 3.0  # an operator's own factor counts as much as this many rows of its class


def fields_of(name: str) -> tuple[str, ...]:
    """The constants that the formula of a class mentions."""
    kind, _, rest = name.partition(".")
    if kind == "product":
        plain = ("cache", "writes") if rest.startswith("simt") else ("cache", "writes", "odd")
        return (*_TILE, *plain, *(("pages",) if rest == "simt" else ()))
    if rest == "depthwise":
        return ("arithmetic", *_FLOW)
    if kind.startswith("convolution"):
        return (*_TILE, *(("winograd", "winograd_large") if rest == "simt" else ("conversion", "odd")))
    if kind.startswith("attention"):
        return ("arithmetic", "tile_overhead", "depth_overhead", "tail", "bandwidth", "launch_cycles", "overlap")
    if kind.startswith("recurrent"):
        return ("arithmetic", "tile_overhead", "bandwidth", "cache", "launch_cycles", "step_cycles")
    if kind in ("reduction", "window"):
        return (*_FLOW, "step_cycles")
    if "normalisation" in kind or kind == "softmax":
        return (*_FLOW, "row_cycles", "step_cycles", "odd", "again")
    if kind in ("list", "pointwise", "movement"):
        return (*_FLOW, "row_cycles")
    if kind in ("sort", "gather", "scatter"):
        return (*_FLOW, "row_cycles", "step_cycles", "odd")
    return _FLOW


def encoded(name: str, value: float) -> float:
    """A constant as a number without bounds."""
    low, high = np.log(BOUNDS[name])
    share = np.clip((np.log(max(value, 1e-9)) - low) / (high - low), 0.02, 0.98)
    return float(np.log(share / (1 - share)))


def decoded(name: str, value: float) -> float:
    low, high = np.log(BOUNDS[name])
    return float(np.exp(low + (high - low) / (1 + np.exp(-value))))


def with_values(start: KindConstants, names: Sequence[str], values: Sequence[float] | Floats) -> KindConstants:
    return replace(start, **{name: decoded(name, float(value)) for name, value in zip(names, values, strict=True)})


def weights(measured: Floats) -> Floats:
    return np.asarray(measured / (measured + HALF_WEIGHT_SECONDS))


@dataclass(frozen=True, slots=True)
class Rows:
    """Works on one GPU with what they took."""

    rates: Rates
    table: WorkTable
    measured: Floats
    weight: float = 1.0  # of this GPU against others

    @classmethod
    def of(cls, samples: Sequence[Sample], rates: Rates) -> Rows:
        table = WorkTable.of([sample.work for sample in samples], [sample.footprint for sample in samples])
        return cls(rates, table, np.array([sample.seconds for sample in samples]))

    @property
    def classes(self) -> Integers:
        return classes_of(self.table, self.rates)

    def where(self, chosen: Integers) -> Rows:
        return replace(self, table=self.table.where(chosen), measured=self.measured[chosen])

    def of_class(self, index: int, most: int = _MOST_ROWS) -> Rows:
        chosen = np.flatnonzero(self.classes == index)
        if len(chosen) > most:
            chosen = np.sort(np.random.default_rng(0).permutation(chosen)[:most])
        return self.where(chosen)


def fit_constants(groups: Sequence[Rows], start: Constants | None = None, rounds: int = 2) -> Constants:
    """Constants of every class with rows, then factors of single operators, and both again."""
    constants = start or Constants()
    for _ in range(rounds):
        kinds = dict(constants.kinds)
        for index, name in enumerate(CLASSES):
            rows = [part for group in groups if len((part := group.of_class(index)).table)]
            for key, share in _shares(name, rows).items():
                if sum(len(group.table) for group in share) >= _least_rows(name):
                    kinds[key] = fit_class(key, share, replace(constants, kinds=kinds), (start or Constants()).of(name))
        constants = replace(constants, kinds=kinds)
        constants = replace(constants, names=name_factors(groups, replace(constants, names={})))
    return constants


def _shares(name: str, rows: Sequence[Rows]) -> dict[str, list[Rows]]:
    """Which rows decide about which constants: those of a class about all GPUs, unless public latencies of many GPUs
    have; then only about their own generation of libraries."""
    if name not in PUBLIC:
        return {name: list(rows)}
    shares: dict[str, list[Rows]] = {}
    for group in rows:
        shares.setdefault(f"{name}@{group.rates.library.name}", []).append(group)
    return shares


def _least_rows(name: str) -> int:
    return max(10, len(fields_of(name)))


def fit_class(
    key: str,
    groups: Sequence[Rows],
    constants: Constants,
    start: KindConstants,
    *,
    prior: float = 0.015,
    most: int = 15,
) -> KindConstants:
    """The constants of one class: least squares of logarithms, with little weight on outliers and short kernels."""
    names = fields_of(key.partition("@")[0])
    centre = np.array([encoded(field, getattr(start, field)) for field in names])

    def residuals(values: Floats) -> Floats:
        tried = replace(constants, kinds={**constants.kinds, key: with_values(start, names, values)})
        parts = [_residuals(group, tried) for group in groups]
        count = sum(len(part) for part in parts)
        return np.concatenate([*parts, prior * np.sqrt(count) * (values - centre)])

    first = np.array([encoded(field, getattr(constants.kinds.get(key, start), field)) for field in names])
    return with_values(start, names, minimise(residuals, first, most))


def _residuals(group: Rows, constants: Constants) -> Floats:
    error = np.log(seconds(group.table, group.rates, constants) / group.measured)
    return np.asarray(np.sqrt(group.weight * weights(group.measured)) * error)


def minimise(residuals: Callable[[Floats], Floats], start: Floats, most: int, robust: float = _ROBUST) -> Floats:
    """Robust least squares."""
    try:
        from scipy.optimize import least_squares
    except ModuleNotFoundError:
        raise MissingDependency("fitting a time model needs the package scipy", "pip install 'tonnage[fit]'") from None
    found = least_squares(residuals, start, loss="soft_l1", f_scale=robust, max_nfev=most, diff_step=1e-3)
    return np.asarray(found.x)


def name_factors(groups: Iterable[Rows], constants: Constants) -> dict[str, float]:
    """Logarithms of how much longer operators take than their class: weighted medians, drawn to 0 where rows are few.

    First by name, then by variant for what a variant differs from its name.
    """
    names: list[str] = []
    variant_names: list[str] = []
    errors, counts = [], []
    for group in groups:
        predicted = seconds(group.table, group.rates, constants)
        floor = constants.columns(group.classes, group.rates.library)["launch_cycles"] / group.rates.clock
        floor = floor * group.table.launches
        busy = np.maximum(predicted - floor, 1e-9)
        errors.append(np.log(np.maximum(group.measured - floor, 0.1 * group.measured) / busy))
        counts.append(weights(group.measured) * busy / predicted)
        names += group.table.names
        variant_names += group.table.variants
    error, count = np.concatenate(errors), np.concatenate(counts)
    found = _shrunk_medians(names, error, count)
    rest = error - np.array([found.get(name, 0.0) for name in names])
    by_variant = _shrunk_medians(variant_names, rest, count)
    parents = dict(zip(variant_names, names, strict=True))
    return found | {variant: value + found.get(parents[variant], 0.0) for variant, value in by_variant.items()}


def _shrunk_medians(names: Sequence[str], error: Floats, count: Floats) -> dict[str, float]:
    found = {}
    every = np.array(names)
    for name in sorted(set(names)):
        chosen = every == name
        total = float(count[chosen].sum())
        if total >= 1:
            found[name] = float(np.clip(_median(error[chosen], count[chosen]) * total / (total + _SHRUNK_BY), -2, 3.5))
    return found


def _median(values: Floats, count: Floats) -> float:
    order = np.argsort(values)
    share = np.cumsum(count[order]) / count.sum()
    return float(values[order][np.searchsorted(share, 0.5)])

"""The kernel model fitted to some GPUs of gpu_ops and asked about another: launches, power cap and calibration included.

The rows were taken with a stop-watch around a call, one call at a time: `max(host, device + share x host)`. The power cap,
which belongs to whole steps in Tonnage (energy.py), is applied to each row here, since each row was repeated for long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from gpu_ops_data import ELEMENTWISE, Measured

from tonnage.benchmark.constant_fit import BOUNDS, fields_of, minimise, weights
from tonnage.estimate.kernels.constants import CLASSES, Constants, KindConstants
from tonnage.estimate.kernels.flows import cold_share, stream_seconds
from tonnage.estimate.kernels.images import algorithm_seconds
from tonnage.estimate.kernels.rates import Library
from tonnage.estimate.kernels.table import Floats
from tonnage.estimate.kernels.tiles import Tiles, candidates, chosen, only_possible, product_seconds

CLASS_OF = {
    "linear": "product.simt",
    "bmm": "product.simt.batched",
    "bf16": "product.half",
    "conv": "convolution.simt",
    "softmax": "softmax",
    "ln": "normalisation",
}
EXTRA_BOUNDS = {"host_share": (0.1, 1.0), "picojoules": (0.3, 60.0)}
# Energy of an operation relative to the fitted one, by architecture: the usual gain of a process node, for plain units and tensor cores.
NODE = {
    "simt": {"Pascal": 0.67, "Volta": 0.58, "Turing": 0.66, "Ampere": 0.42, "Ada Lovelace": 0.27, "Hopper": 0.27},
    "half": {"Volta": 1.0, "Turing": 1.0, "Ampere": 0.44, "Ada Lovelace": 0.52, "Hopper": 0.41},
}  # fmt: skip
Kernels = Sequence[Library | Tiles]  # the kernels to expect on a GPU: the mean of several guesses
FAMILY_DECAY = 0.7  # rows of a library one generation away count exp(-0.7)


@dataclass(frozen=True)
class Setting:
    """Everything that is fitted for one operator."""

    constants: KindConstants
    host_share: float = 0.5
    picojoules: float = 13.0
    scale: float = 1.0

    def value(self, name: str) -> float:
        return float(getattr(self if name in EXTRA_BOUNDS else self.constants, name))

    def changed(self, names: Sequence[str], values: Floats) -> Setting:
        found = {name: decode(name, float(value)) for name, value in zip(names, values, strict=True)}
        own = {name: found.pop(name) for name in list(found) if name in EXTRA_BOUNDS}
        return replace(self, constants=replace(self.constants, **found), **own)


def class_of(operator: str) -> str:
    return CLASS_OF.get(operator, "pointwise")


def fitted_names(operator: str) -> tuple[str, ...]:
    if operator in ELEMENTWISE:
        return ("bandwidth", "host_share")
    names = tuple(
        name
        for name in fields_of(class_of(operator))
        if name not in ("odd",) and (operator == "bf16" or name != "launch_cycles")
    )
    names = tuple(name for name in names if name != "choice" or operator == "conv")
    return names if operator == "bf16" else (*names, "host_share", *(("picojoules",) if operator == "bmm" else ()))


def _range(name: str) -> tuple[float, float]:
    return tuple(np.log(BOUNDS.get(name) or EXTRA_BOUNDS[name]))


def encode(name: str, value: float) -> float:
    low, high = _range(name)
    share = np.clip((np.log(max(value, 1e-9)) - low) / (high - low), 0.02, 0.98)
    return float(np.log(share / (1 - share)))


def decode(name: str, value: float) -> float:
    low, high = _range(name)
    return float(np.exp(low + (high - low) / (1 + np.exp(-value))))


# Where each fit begins. Not the constants that Tonnage ships: those were fitted to all GPUs, the left-out one included.
_START = {
    "linear": KindConstants(arithmetic=1.2, tile_overhead=6.0, depth_overhead=30.0, warp_overhead=1.5, tail=0.65, pages=0.4, choice=0.06, writes=1.5, split_cycles=15000.0),
    "bmm": KindConstants(arithmetic=1.2, tile_overhead=6.0, depth_overhead=12.0, tail=0.75, choice=0.3),
    "bf16": KindConstants(tile_overhead=14.0, depth_overhead=100.0, odd=0.5, launch_cycles=3500.0),
    "conv": KindConstants(),
}  # fmt: skip


def start(operator: str) -> Setting:
    constants = _START.get(operator, KindConstants())
    if operator == "bf16":
        return Setting(constants, host_share=0.1, picojoules=1.4)
    return Setting(constants)


# -- seconds -----------------------------------------------------------------------------------------------------------------


def device_seconds(
    rows: Measured, setting: Setting, libraries: Kernels | None = None, *, known_tiles: bool = False
) -> Floats:
    """Seconds on the device, capped. `libraries`: whose kernels to expect, where the GPU's own have not been seen."""
    name = class_of(rows.operator)
    constants = Constants(kinds={name: setting.constants})
    columns = constants.columns(np.full(len(rows), CLASSES.index(name)), rows.rates.library)
    cold = repeated_share(rows) if rows.has_host else cold_share(rows.table, rows.rates, constants.resident)
    if rows.operator in ("linear", "bmm", "bf16"):
        if known_tiles and rows.tiles is not None:
            busy = _capped_products(rows, setting, columns, cold, rows.tiles)[:, 0]
        else:
            parts = [
                np.log(
                    chosen(
                        only_possible(rows.table.depth, tiles, _capped_products(rows, setting, columns, cold, tiles)),
                        columns["choice"],
                    )
                )
                for tiles in _tile_sets(rows, libraries)
            ]
            busy = np.exp(np.mean(parts, axis=0))
    elif rows.operator == "conv":
        busy = _capped_convolutions(rows, setting, columns, cold)
    else:
        busy = stream_seconds(rows.table, rows.rates, columns, cold)
    launch = setting.constants.launch_cycles / rows.rates.clock if not rows.has_host or rows.operator == "bf16" else 0.0
    return np.asarray(setting.scale * (busy + launch))


def repeated_share(rows: Measured) -> Floats:
    """Share of bytes that memory delivers when a call is repeated: nothing if all that the benchmark touches stays cached."""
    size = (rows.table.footprint / (0.9 * rows.rates.l2_bytes)) ** 4
    return np.asarray(size / (1 + size))


def _tile_sets(rows: Measured, libraries: Kernels | None) -> list[Tiles]:
    unit = "half" if rows.operator == "bf16" else "simt"
    kind = "batched" if rows.operator == "bmm" else "plain"
    wanted = libraries or [rows.rates.library]
    return [candidates(library, unit, kind) if isinstance(library, Library) else library for library in wanted]


def single_tiles() -> list[Tiles]:
    """A library that has but one kernel: what else could a GPU run whose library nobody has seen?"""
    shapes = ((128, 128), (64, 128), (64, 64))
    return [Tiles(*(np.full((1, 1), float(value)) for value in (*shape, 1, 1))) for shape in shapes]


def _capped_products(rows: Measured, setting: Setting, columns, cold: Floats, tiles: Tiles) -> Floats:
    seconds = product_seconds(rows.table, rows.rates, columns, cold, tiles)
    table, unit = rows.table, "half" if rows.operator == "bf16" else "simt"
    whole = (
        np.ceil(table.rows[:, None] / tiles.rows)
        * tiles.rows
        * np.ceil(table.columns[:, None] / tiles.columns)
        * tiles.columns
    )
    small = 1 + (5.0 if unit == "half" else 40.0) / tiles.reuse  # small tiles load more for each operation
    layout = 1.2 if rows.operator == "linear" else 1.0
    joules = (
        2.0 * whole * (table.depth * table.batch)[:, None] * small * layout * _joules_operation(rows, setting, unit)
    )
    return capped(seconds, joules + (table.bytes * cold)[:, None] * 45e-12, rows)


def _capped_convolutions(rows: Measured, setting: Setting, columns, cold: Floats) -> Floats:
    seconds = algorithm_seconds(rows.table, rows.rates, columns, cold, "simt")
    fewer = np.ones(seconds.shape[1])
    fewer[-2:] = 2.25, 4.0  # products that the transformations save
    joules = (rows.table.operations * _joules_operation(rows, setting, "simt"))[:, None] / fewer * 1.8
    return chosen(capped(seconds, joules + (rows.table.bytes * cold)[:, None] * 45e-12, rows), columns["choice"])


def _joules_operation(rows: Measured, setting: Setting, unit: str) -> float:
    return setting.picojoules * 1e-12 * NODE[unit].get(rows.gpu.architecture, 0.3)


def capped(seconds: Floats, joules: Floats, rows: Measured) -> Floats:
    """At least as long as the board needs for the energy; for some milliseconds it tolerates more."""
    share = 0.75 if rows.gpu.memory_type.startswith("HBM") else 0.60
    relief = 1.0 if rows.operator == "bf16" else 1 - 0.3 * np.exp(-np.minimum(seconds, 1.0) / 2e-3)
    need = np.maximum(joules / (share * rows.gpu.tdp_watts) * relief - 3e-5, 1e-12)
    high, low = np.maximum(seconds, need), np.minimum(seconds, need)
    return np.asarray(high * (1 + (low / high) ** 8) ** 0.125)


@dataclass(frozen=True)
class Host:
    """Launch time of the machine a GPU sat in, and how much it grew during the measuring run."""

    seconds: float
    drift: float = 0.0

    def column(self, rows: Measured) -> Floats:
        return np.asarray(self.seconds + self.drift * rows.position)


def total_seconds(rows: Measured, device: Floats, host: Floats, share: float) -> Floats:
    if not rows.has_host or rows.operator == "bf16":
        return device
    power = 20.0 if rows.operator in ELEMENTWISE else 6.0
    other = device + share * host
    high = np.maximum(host, other)
    return np.asarray(high * ((host / high) ** power + (other / high) ** power) ** (1 / power))


def host_of(rows: Measured) -> Host:
    """From the rows that have least to do."""
    if rows.operator == "bf16" or not rows.has_host:
        return Host(0.0)
    roof = np.maximum(rows.table.operations / rows.rates.operations[0], rows.table.bytes / rows.rates.bandwidth)
    least = rows.take(np.argsort(roof)[: max(60, len(rows) // 20)])
    if rows.operator != "conv":
        return Host(float(np.quantile(least.seconds, 0.25)))
    sixth = np.floor(least.position * 6)
    points = [
        (least.position[sixth == s].mean(), np.quantile(least.seconds[sixth == s], 0.2)) for s in np.unique(sixth)
    ]
    slope, base = np.polyfit(*zip(*points, strict=True), 1)
    return Host(max(base, 2e-5), max(slope, 0.0))


def typical(hosts: Sequence[Host]) -> Host:
    """To expect on a machine nobody measured: slow hosts are the exception."""
    return Host(
        float(np.quantile([h.seconds for h in hosts], 0.25)), float(np.quantile([h.drift for h in hosts], 0.25))
    )


# -- fits --------------------------------------------------------------------------------------------------------------------


def fit(
    groups: Sequence[tuple[Measured, Host, float]],
    begin: Setting,
    *,
    known_tiles: bool,
    prior: float = 0.015,
    most: int = 20,
    libraries=None,
    names: tuple[str, ...] = (),
) -> Setting:
    """Groups are rows, their host and how much they count."""
    names = names or fitted_names(groups[0][0].operator)
    centre = np.array([encode(name, begin.value(name)) for name in names])

    def residuals(values: Floats) -> Floats:
        tried = begin.changed(names, values)
        parts = [np.sqrt(weight) * _errors(rows, host, tried, known_tiles, libraries) for rows, host, weight in groups]
        count = sum(map(len, parts))
        return np.concatenate([*parts, prior * np.sqrt(count) * (values - centre)])

    return begin.changed(names, minimise(residuals, centre, most))


def _errors(rows: Measured, host: Host, setting: Setting, known_tiles: bool, libraries=None) -> Floats:
    device = device_seconds(rows, setting, libraries, known_tiles=known_tiles)
    predicted = total_seconds(rows, device, host.column(rows), setting.host_share)
    weight = 1.0 if rows.has_host else np.sqrt(weights(rows.seconds))
    return np.asarray(weight * np.log(predicted / rows.seconds))


def with_known_tiles(rows: Measured) -> Measured:
    if rows.tiles is None:
        return rows
    return rows.take(np.flatnonzero(np.isfinite(rows.tiles.rows[:, 0])))


def family_weight(rows: Measured, target: Library) -> float:
    return float(np.exp(-FAMILY_DECAY * abs(int(rows.rates.library) - int(target))))


def libraries_for(target: Library, seen: Sequence[Library], operator: str) -> list[Library]:
    """The kernels to expect: the GPU's own where another GPU of its generation was seen, else those of its neighbours."""
    if operator == "linear":
        return [
            target
            if (target == Library.PASCAL) == (Library.PASCAL in seen and target == Library.PASCAL)
            else Library.VOLTA
        ]
    return [target] if target in seen else sorted(set(seen))


# -- a few points of the GPU itself ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Calibration:
    """What a few points said: the setting, the host and whose kernels the GPU runs."""

    setting: Setting
    host: Host
    libraries: Kernels | None


def calibrate(
    points: Measured, setting: Setting, host: Host, spread: Floats, hypotheses: Sequence, noise: float = 0.1
) -> Calibration:
    """The most probable constants, given how much they differ between GPUs."""
    names = fitted_names(points.operator)
    centre = np.array([encode(name, setting.value(name)) for name in names])
    best = None
    for cost, tried_libraries in hypotheses:

        def unpack(values: Floats) -> tuple[Setting, Host]:
            moved = setting.changed(names, centre + spread * values[:-3])
            return replace(moved, scale=float(np.exp(0.15 * values[-1]))), Host(
                host.seconds * float(np.exp(0.35 * values[-2])), host.drift * float(np.exp(0.5 * values[-3]))
            )

        def residuals(values: Floats) -> Floats:
            tried, machine = unpack(values)
            error = _errors(points, machine, tried, False, tried_libraries) / noise
            robust = np.sign(error) * np.sqrt(2 * (np.sqrt(1 + error * error) - 1))
            return np.concatenate([robust, values])

        found = _plain_minimum(residuals, len(names) + 3)
        value = float((residuals(found) ** 2).sum()) / 2 + cost
        if best is None or value < best[0]:
            best = value, Calibration(*unpack(found), tried_libraries)
    assert best is not None
    return best[1]


def _plain_minimum(residuals: Callable[[Floats], Floats], size: int) -> Floats:
    from scipy.optimize import least_squares

    return np.asarray(least_squares(residuals, np.zeros(size), max_nfev=10, diff_step=1e-2).x)


def informative(
    rows: Measured, setting: Setting, host: Host, spread: Floats, libraries, count: int, noise: float = 0.1
) -> np.ndarray:
    """Which rows to measure: those that together say most about the constants (greedy D-optimal design). Looks at shapes only."""
    names = fitted_names(rows.operator)
    centre = np.array([encode(name, setting.value(name)) for name in names])

    def predicted(values: Floats) -> Floats:
        machine = Host(host.seconds * float(np.exp(0.35 * values[-2])), host.drift * float(np.exp(0.5 * values[-3])))
        moved = replace(setting.changed(names, centre + spread * values[:-3]), scale=float(np.exp(0.15 * values[-1])))
        return np.log(
            total_seconds(rows, device_seconds(rows, moved, libraries), machine.column(rows), moved.host_share)
        )

    size = len(names) + 3
    base = predicted(np.zeros(size))
    slopes = np.stack([(predicted(0.3 * row) - base) / 0.3 for row in np.eye(size)], axis=1) / noise
    information, picked = np.eye(size), []
    for _ in range(count):
        gain = np.einsum("ij,jk,ik->i", slopes, np.linalg.inv(information), slopes)
        gain[picked] = -1
        picked.append(int(np.argmax(gain)))
        information = information + np.outer(slopes[picked[-1]], slopes[picked[-1]])
    return np.array(picked)

"""Which configuration keeps a promise: the smallest one whose bound, not only its best value, is within the limits.

Smallest means fewest GPUs; among as many, the cheapest run where prices are known, else the one with the least energy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import ceil, floor, inf, log10
from typing import Any

from tonnage.errors import DoesNotFit
from tonnage.estimate.estimate import Estimate, Interval
from tonnage.estimate.time_estimate import times_of
from tonnage.units import format_bytes, format_energy, format_seconds, format_usd

_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the user asks for; None means no limit. `steps` are those of the whole run on one GPU."""

    steps: float
    deadline_seconds: float | None = None
    most_gpus: int | None = None
    most_usd: float | None = None
    most_joules: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A number of GPUs of one kind, and what the whole run needs on them."""

    estimate: Estimate
    seconds: Interval
    joules: Interval
    usd: Interval | None
    reasons: tuple[str, ...] = ()  # why it does not keep the promise
    excess: tuple[tuple[str, float], ...] = ()  # limit, and by which factor it is exceeded

    @property
    def name(self) -> str:
        count = self.estimate.gpu_count
        return self.estimate.gpu if count == 1 else f"{count} x {self.estimate.gpu}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "gpu": self.estimate.gpu,
            "gpu_count": self.estimate.gpu_count,
            "run_seconds": self.seconds.as_dict(),
            "run_joules": self.joules.as_dict(),
            "run_usd": None if self.usd is None else self.usd.as_dict(),
            "reasons": list(self.reasons),
            "estimate": self.estimate.as_dict(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The chosen configuration, others that would do, and those that would not, each with its reasons."""

    limits: Limits
    chosen: Configuration
    alternatives: tuple[Configuration, ...]
    rejected: tuple[Configuration, ...]
    program: str = ""
    warnings: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "program": self.program,
            "limits": asdict(self.limits),
            "chosen": self.chosen.as_dict(),
            "alternatives": [configuration.as_dict() for configuration in self.alternatives],
            "rejected": [configuration.as_dict() for configuration in self.rejected],
            "warnings": list(self.warnings),
        }


def recommend(estimates: Sequence[Estimate], limits: Limits) -> Recommendation:
    """Raises `DoesNotFit` where nothing keeps the promise; it names the limit that binds and by how much."""
    judged = [_judge(estimate, limits) for estimate in estimates if estimate.time is not None]
    kept = sorted((c for c in judged if not c.reasons), key=_size)
    rejected = tuple(sorted((c for c in judged if c.reasons), key=_size))
    if not kept:
        raise _nothing(rejected, limits)
    return Recommendation(limits=limits, chosen=kept[0], alternatives=tuple(kept[1:]), rejected=rejected)


def _judge(estimate: Estimate, limits: Limits) -> Configuration:
    time = estimate.time
    assert time is not None  # the caller left others out
    steps = limits.steps / estimate.gpu_count  # each GPU takes its part of the samples
    seconds = times_of(time.step_seconds, steps)
    joules = times_of(time.energy_joules_step, steps)
    price = time.cost_usd_hour
    usd = None if price is None else times_of(seconds, price.value / _HOUR)
    checks: list[tuple[str, float | None, float | None, Callable[[float], str]]] = [
        ("memory", estimate.device_bytes.high, estimate.usable_bytes, format_bytes),
        ("GPUs", estimate.gpu_count, limits.most_gpus, lambda v: f"{v:.0f}"),
        ("time", seconds.high, limits.deadline_seconds, format_seconds),
        ("cost", usd.high if usd else None, limits.most_usd, format_usd),
        ("energy", joules.high, limits.most_joules, format_energy),
    ]
    reasons, excess = [], []
    for name, needed, limit, words in checks:
        if limit is None:
            continue
        if needed is None:
            reasons.append(f"its price is not known, so a limit of {words(limit)} cannot be promised")
            excess.append((name, inf))
        elif needed > limit:
            reasons.append(f"{name}: needs up to {words(needed)} of {words(limit)}")
            excess.append((name, needed / limit))
    return Configuration(
        estimate=estimate, seconds=seconds, joules=joules, usd=usd, reasons=tuple(reasons), excess=tuple(excess)
    )


def _size(configuration: Configuration) -> tuple[float, ...]:
    cost = configuration.usd.value if configuration.usd else inf
    return configuration.estimate.gpu_count, cost, configuration.joules.value


def _nothing(rejected: Sequence[Configuration], limits: Limits) -> DoesNotFit:
    """The configuration that comes nearest, the limit that it misses most, and limits that it would keep."""
    if not rejected:
        return DoesNotFit("no GPU was considered")
    nearest = min(rejected, key=lambda c: (max(factor for _, factor in c.excess), _size(c)))
    worst = max(range(len(nearest.excess)), key=lambda index: nearest.excess[index][1])
    name, factor = nearest.excess[worst]
    missed = dict(nearest.excess)
    hint = (
        "try a smaller batch, or on several GPUs --shard zero3"
        if "memory" in missed
        else f"with {' and '.join(_relaxed(*pair, limits) for pair in missed.items())} it would do"
    )
    return DoesNotFit(
        f"no configuration keeps the promise; {name} binds: the nearest is {nearest.name}; "
        f"{nearest.reasons[worst]}{_too_much(factor)}",
        hint,
    )


def _too_much(factor: float) -> str:
    if factor == inf:
        return ""
    times = f"{factor:.3g}" if factor < 100 else f"{factor:,.0f}"
    return f" ({(factor - 1) * 100:.0f} % too much)" if factor < 3 else f" ({times} times as much)"


def _relaxed(name: str, factor: float, limits: Limits) -> str:
    """A limit that would do, rounded up."""
    match name:
        case "time":
            return f"a deadline of {format_seconds(_whole_minutes((limits.deadline_seconds or 0.0) * factor))}"
        case "GPUs":
            return f"--max-gpus {round((limits.most_gpus or 1) * factor)}"
        case "cost":
            return (
                "no limit on cost"
                if factor == inf
                else f"a budget of {format_usd(_whole_cents((limits.most_usd or 0.0) * factor))}"
            )
        case _:
            return format_energy(3.6e6 * _up((limits.most_joules or 0.0) * factor / 3.6e6))


def _whole_minutes(seconds: float) -> float:
    return 60.0 * ceil(seconds / 60 - 1e-9) if seconds >= 120 else _up(seconds)


def _whole_cents(dollars: float) -> float:
    unit = 1.0 if dollars >= 100 else 0.01
    return _up(dollars) if dollars < 0.1 else ceil(dollars / unit - 1e-9) * unit


def _up(value: float) -> float:
    """Three digits, and not less."""
    unit = 10.0 ** (floor(log10(value)) - 2)
    return ceil(value / unit - 1e-9) * unit

"""Which configuration keeps a promise: the smallest one whose bound, not only its best value, is within the limits.

Smallest means fewest GPUs; among as many, the cheapest run where prices are known, else the one with the least energy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tonnage.errors import DoesNotFit
from tonnage.estimate.estimate import Estimate, Interval
from tonnage.estimate.time_estimate import times_of
from tonnage.units import format_bytes, format_seconds

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

    def as_dict(self) -> dict[str, Any]:
        return {
            "chosen": self.chosen.as_dict(),
            "alternatives": [configuration.as_dict() for configuration in self.alternatives],
            "rejected": [configuration.as_dict() for configuration in self.rejected],
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
        ("memory", estimate.device_bytes.value, estimate.usable_bytes, format_bytes),
        ("GPUs", estimate.gpu_count, limits.most_gpus, lambda v: f"{v:.0f}"),
        ("time", seconds.high, limits.deadline_seconds, format_seconds),
        ("cost", usd.high if usd else None, limits.most_usd, lambda v: f"{v:,.2f} USD"),
        ("energy", joules.high, limits.most_joules, lambda v: f"{v / 3.6e6:,.3g} kWh"),
    ]
    reasons, excess = [], []
    for name, needed, limit, words in checks:
        if limit is None:
            continue
        if needed is None:
            reasons.append(f"its price is not known, so a limit of {words(limit)} cannot be promised")
            excess.append((name, float("inf")))
        elif needed > limit:
            reasons.append(f"{name}: needs up to {words(needed)} of {words(limit)}")
            excess.append((name, needed / limit))
    return Configuration(
        estimate=estimate, seconds=seconds, joules=joules, usd=usd, reasons=tuple(reasons), excess=tuple(excess)
    )


def _size(configuration: Configuration) -> tuple[float, ...]:
    cost = configuration.usd.value if configuration.usd else float("inf")
    return configuration.estimate.gpu_count, cost, configuration.joules.value


def _nothing(rejected: Sequence[Configuration], limits: Limits) -> DoesNotFit:
    """The configuration that comes nearest, and the limit that it misses."""
    if not rejected:
        return DoesNotFit("no GPU was considered")
    nearest = min(rejected, key=lambda c: (max(factor for _, factor in c.excess), _size(c)))
    name, factor = max(nearest.excess, key=lambda pair: pair[1])
    found = f"the nearest, {nearest.name}, {nearest.reasons[0]}{_too_much(factor)}"
    return DoesNotFit(
        f"no configuration keeps the promise; {name} binds: {found}",
        f"with {_relaxed(name, factor, limits)} it would do",
    )


def _too_much(factor: float) -> str:
    if factor == float("inf"):
        return ""
    return f" ({(factor - 1) * 100:.0f} % too much)" if factor < 3 else f" ({factor:.3g} times as much)"


def _relaxed(name: str, factor: float, limits: Limits) -> str:
    match name:
        case "time":
            return f"a deadline of {format_seconds((limits.deadline_seconds or 0.0) * factor)}"
        case "GPUs":
            return f"--max-gpus {round((limits.most_gpus or 1) * factor)}"
        case "cost":
            unknown = factor == float("inf")
            return "no limit on cost" if unknown else f"a budget of {(limits.most_usd or 0.0) * factor:,.2f} USD"
        case "energy":
            return f"{(limits.most_joules or 0.0) * factor / 3.6e6:,.3g} kWh"
        case _:
            return "a smaller batch or sharded state (--shard zero3)"

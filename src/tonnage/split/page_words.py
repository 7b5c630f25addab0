"""Targets and their values as sentences."""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.estimate.page_text import duration, escape
from tonnage.split.distribution import Distribution
from tonnage.split.metrics import Metrics
from tonnage.split.network import Network
from tonnage.split.targets import Target
from tonnage.units import format_joules

Numbered = Sequence[tuple[int, Distribution]]  # with the number under which the page shows it

NAMES = {
    Target.THROUGHPUT: "period",
    Target.LATENCY: "latency",
    Target.ENERGY: "energy",
    Target.MEMORY: "memory of the fullest device",
    Target.NODES: "devices",
    Target.STEP: "training step",
}


def value_words(target: Target, value: float) -> str:
    if target is Target.ENERGY:
        return format_joules(value)
    if target is Target.MEMORY:
        return share_words(value)
    if target is Target.NODES:
        return f"{value:.0f}"
    return duration(value)


def share_words(share: float) -> str:
    """In percent, with two digits at least of small ones."""
    percent = 100 * share
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.2g} %"


def count_words(count: int, what: str) -> str:
    ending = "" if count == 1 else "es" if what.endswith(("ch", "x")) else "s"
    return f"{count:,} {what}{ending}"


def sentence(network: Network, distribution: Distribution) -> str:
    """What the value means, and how far from the best it can be; HTML."""
    target = Target(distribution.target)
    meaning = _meaning(target, network, distribution.metrics) if distribution.metrics is not None else ""
    return f"{meaning} {certainty(distribution)}".strip()


def _meaning(target: Target, network: Network, metrics: Metrics) -> str:
    unit = unit_of(network)
    devices = count_words(metrics.devices, "device")
    match target:
        case Target.THROUGHPUT:
            place = f'<code class="place">{escape(arrowed(metrics.bottleneck))}</code>'
            return f"A {unit} every {duration(metrics.period_seconds)}{_rate(metrics)}; {place} sets the pace."
        case Target.LATENCY:
            return f"A {unit} alone is done after {duration(metrics.latency_seconds)} on {devices}."
        case Target.ENERGY:
            return f"A {unit} takes {format_joules(metrics.energy_joules)} on {devices}."
        case Target.MEMORY:
            return f"No device holds more than {share_words(metrics.memory_share)} of its memory."
        case Target.NODES:
            return f"{devices} {'is' if metrics.devices == 1 else 'are'} enough."
        case Target.STEP:
            return f"A step is done after {duration(metrics.step_seconds)} on {devices}."


def _rate(metrics: Metrics) -> str:
    if not metrics.period_seconds:
        return ""
    rate = 1 / metrics.period_seconds
    return f", {rate:,.0f} a second" if rate >= 100 else f", {rate:.3g} a second"


def arrowed(place: str) -> str:
    """`box-0->tor`, a direction of a link, as people write it."""
    return place.replace("->", " → ")


def unit_of(network: Network) -> str:
    return "micro-batch" if network.is_training else "sample"


def certainty(distribution: Distribution) -> str:
    target = Target(distribution.target)
    if distribution.proven_optimal:
        return "No distribution is better."
    if distribution.bound <= 0:
        return "No bound is known."
    return (
        f"No distribution is below {value_words(target, distribution.bound)}; "
        f"this one is at most {share_words(distribution.gap)} above."
    )

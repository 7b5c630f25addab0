"""Distributions as tables."""

from __future__ import annotations

import sys
from collections import Counter
from math import inf
from typing import TYPE_CHECKING

from tonnage.units import format_bytes, format_joules, format_seconds

if TYPE_CHECKING:
    from rich.console import Console

    from tonnage.split.distribution import Distribution
    from tonnage.split.metrics import Metrics
    from tonnage.split.replanning import Replan
    from tonnage.stages.carrying_out import Outcome
    from tonnage.stages.splitting import Split


def print_split(found: Split) -> None:
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    for distribution in found.distributions:
        _print_distribution(console, distribution)
    if found.replanned is not None:
        console.print(_change(found.replanned))
    if found.front:
        _print_front(console, found)
    console.print(f"[dim]{format_seconds(found.seconds)}[/dim]")


def _change(again: Replan) -> str:
    """What a re-plan says in a sentence."""
    change = again.migration
    before = format_seconds(again.old_period_seconds) if again.old_period_seconds < inf else "nothing: a device is lost"
    if not again.pays:
        return f"The last distribution ({before}) is still as good; nothing moves."
    moved = f"{format_bytes(change.total_bytes)} must move, which takes {format_seconds(change.seconds)}"
    return (
        f"The last distribution brings {before} now; {moved} and pays after {change.samples_until_ahead:,.1f} samples."
    )


def _print_distribution(console: Console, distribution: Distribution) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    console.print(f"[bold]{distribution.target}[/bold]: {_headline(distribution)}")
    counts = Counter(distribution.assignment.values())
    metrics = distribution.metrics
    if metrics is None:
        table = Table("device", "operations", box=SIMPLE_HEAD, pad_edge=False)
        for device in sorted(counts):
            table.add_row(device, f"{counts[device]:,}")
        console.print(table)
        return
    table = Table("device", "operations", "busy", "of the period", "memory", box=SIMPLE_HEAD, pad_edge=False)
    first_of = {device: first for first, further in distribution.replicas.items() for device in further}
    for device in distribution.devices:
        busy = metrics.busy_seconds[device]
        table.add_row(
            f"{device} in turn with {first_of[device]}" if device in first_of else device,
            f"{counts[first_of.get(device, device)]:,}",
            format_seconds(busy),
            f"{busy / metrics.period_seconds:.0%}" if metrics.period_seconds else "-",
            format_bytes(metrics.memory_bytes[device]),
        )
    console.print(table)
    console.print(f"{_words(metrics)}; slowest: {metrics.bottleneck}\n")


def _headline(distribution: Distribution) -> str:
    value, bound = (_value(distribution.target, each) for each in (distribution.value, distribution.bound))
    if distribution.metrics is None:  # the units of the file
        value, bound = f"{distribution.value:.6g}", f"{distribution.bound:.6g}"
    if distribution.proven_optimal:
        return f"{value}, and no distribution is better"
    return f"{value}; no distribution is below {bound} (gap {distribution.gap:.1%})"


def _value(target: str, value: float) -> str:
    if target == "energy":
        return format_joules(value)
    if target == "memory":
        return f"{value:.1%} of the fullest device"
    if target == "nodes":
        return f"{value:.0f} devices"
    return format_seconds(value)


def _words(metrics: Metrics) -> str:
    parts = [
        f"a sample every {format_seconds(metrics.period_seconds)} ({1 / metrics.period_seconds:,.1f} a second)"
        if metrics.period_seconds
        else "no time at all",
        f"latency {format_seconds(metrics.latency_seconds)}",
        f"{format_bytes(metrics.moved_bytes)} moved",
    ]
    if metrics.energy_joules:
        parts.append(f"{format_joules(metrics.energy_joules)} a sample")
    if metrics.step_seconds:
        parts.append(f"a step in {format_seconds(metrics.step_seconds)}")
    return ", ".join(parts)


def _print_front(console: Console, found: Split) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from tonnage.split.targets import value_of

    table = Table(*(axis.value for axis in found.axes), "devices", box=SIMPLE_HEAD, pad_edge=False)
    for distribution in found.front:
        if distribution.metrics is not None:
            values = [_value(axis.value, value_of(axis, distribution.metrics)) for axis in found.axes]
        else:
            values = [f"{distribution.own_values[axis.value]:.6g}" for axis in found.axes]
        table.add_row(*values, ", ".join(distribution.devices or sorted(set(distribution.assignment.values()))))
    console.print(table)


def print_outcome(outcome: Outcome) -> None:
    """Predicted beside measured."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    table = Table("", "predicted", "measured", "error", box=SIMPLE_HEAD, pad_edge=False)
    for each in outcome.beside:
        table.add_row(each.what, format_seconds(each.predicted), format_seconds(each.measured), f"{each.error:+.0%}")
    console.print(table)
    report = outcome.report
    if report.is_equal is not None:
        same = "equal to the unsplit network, to the last bit"
        differs = f"differ from the unsplit network by up to {report.largest_difference:.3g}"
        what = "losses and weights" if report.mode == "training" else "outputs"
        console.print(f"{what}: {same if report.is_equal else differs}")

"""Simulations as tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from tonnage.allocate.simulate.summary import Summary

_HOUR = 3600.0


def comparison(what: str, names: Sequence[str], summaries: Sequence[Summary]) -> Table:
    """One row for each simulation."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(what)
    for heading in ("mean h", "median h", "p99 h", "makespan h", "slowdown", "fairness", "preemptions", "solver s"):
        table.add_column(heading, justify="right")
    for name, summary in zip(names, summaries, strict=True):
        table.add_row(name, *_cells(summary))
    return table


def _cells(summary: Summary) -> tuple[str, ...]:
    return (
        f"{summary.mean_completion_seconds / _HOUR:.2f}",
        f"{summary.median_completion_seconds / _HOUR:.2f}",
        f"{summary.p99_completion_seconds / _HOUR:.2f}",
        f"{summary.makespan_seconds / _HOUR:.2f}",
        f"{summary.mean_slowdown:.2f}",
        f"{summary.mean_finish_time_fairness:.2f}",
        f"{summary.preemptions:,}",
        f"{summary.solver_cpu_seconds:.1f}",
    )


def details(summary: Summary) -> Table:
    """One simulation."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column()
    bound = summary.makespan_bound_seconds
    rows = {
        "policy": summary.policy,
        "jobs": f"{summary.jobs:,}",
        "completion": f"mean {_hours(summary.mean_completion_seconds)}, median "
        f"{_hours(summary.median_completion_seconds)}, p99 {_hours(summary.p99_completion_seconds)}",
        "makespan": _hours(summary.makespan_seconds) + (f", at least {_hours(bound)}" if bound else ""),
        "slowdown": f"mean {summary.mean_slowdown:.2f}, p99 {summary.p99_slowdown:.2f}",
        "finish-time fairness": f"mean {summary.mean_finish_time_fairness:.2f}, worst "
        f"{summary.worst_finish_time_fairness:.2f}",
        "GPUs in use": ", ".join(f"{name} {share:.0%}" for name, share in summary.utilisation.items()),
        "preemptions": f"{summary.preemptions:,}",
        "decisions": f"{summary.decisions:,} in {summary.solver_cpu_seconds:.2f} s of processor time",
    }
    for name, text in rows.items():
        table.add_row(name, text)
    return table


def _hours(seconds: float) -> str:
    return f"{seconds / _HOUR:.2f} h" if seconds >= _HOUR else f"{seconds / 60:.1f} min"

"""A profile as people read it on a terminal."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tonnage.profile.indicators import Indicators
from tonnage.profile.report import ProfileReport, TimeRow
from tonnage.units import format_bytes, format_seconds

_BAR = 30
_MOST_ROWS = 8
_PARTS = {
    "forward": ("forward_seconds", "blue"), "backward": ("backward_seconds", "yellow"),
    "optimizer": ("optimizer_seconds", "green"), "copies to the GPU": ("h2d_seconds", "magenta"),
    "copies to the host": ("d2h_seconds", "magenta"), "waiting for data": ("data_wait_seconds", "red"),
    "idle": ("idle_seconds", "bright_black"),
}  # fmt: skip
_OPTIONAL = ("copies to the GPU", "copies to the host", "waiting for data")


def print_profile(report: ProfileReport) -> None:
    # Without a terminal, give the table room instead of cutting it at 80 columns.
    console = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 160)
    found = report.indicators
    console.print(_headline(found, report), soft_wrap=True)
    console.print(_parts(found))
    for line in _resources(found):
        console.print(line, soft_wrap=True)
    for title, rows in (("module", report.modules), ("operator", report.operators)):
        if rows:
            console.print()
            console.print(_times(title, rows, found))
    for note in report.notes:
        print(f"note: {note}", file=sys.stderr)
    if report.hint:
        console.print(Text.assemble(("\ntry first: ", "bold"), report.hint), soft_wrap=True)


def _headline(found: Indicators, report: ProfileReport) -> Text:
    where = (
        f"{found.gpu_count} x {found.gpu}" if found.gpu_count > 1 else found.gpu or report.machine.cpu or found.device
    )
    words = "predicted for" if found.basis == "predicted" else "on"
    count = "" if found.basis == "predicted" else f", mean of {found.steps} steps" if found.steps > 1 else ""
    return Text.assemble(
        (found.program, "bold"),
        f"  {words} {where}\na step takes ",
        (format_seconds(found.step_seconds), "bold"),
        f"{count}\n",
    )


def _parts(found: Indicators) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    for justify in ("left", "right", "right", "left"):
        table.add_column(justify=justify, no_wrap=True)
    for name, (field, colour) in _PARTS.items():
        seconds = getattr(found, field)
        if seconds or name not in _OPTIONAL:
            share = found.share(seconds)
            filled = round(_BAR * share)
            bar = Text.assemble(("━" * filled, colour), ("─" * (_BAR - filled), "bright_black"))
            table.add_row(name, format_seconds(seconds), f"{share:.0%}", bar)
    return table


def _resources(found: Indicators) -> list[str]:
    """What was used besides time; what is not known is left out."""
    lines = []
    copies = [
        f"{format_bytes(size)} to the {side} at {format_bytes(rate)}/s"
        for size, rate, side in (
            (found.h2d_bytes, found.h2d_bytes_second, "GPU"), (found.d2h_bytes, found.d2h_bytes_second, "host"),
        )
        if rate is not None
    ]  # fmt: skip
    if copies:
        lines.append(f"\ncopies a step: {', '.join(copies)}; {found.pinned_share:.0%} from pinned memory")
    used = []
    if found.peak_host_bytes is not None:
        used.append(f"host memory {format_bytes(found.peak_host_bytes)}")
    if found.cpu_cores_used is not None:
        used.append(f"{found.cpu_cores_used:.1f} CPU cores ({found.cpu_utilisation or 0:.0%} of those it may use)")
    if found.loader_workers is not None:
        used.append(f"{found.loader_workers} loader workers")
    if found.peak_gpu_bytes is not None:
        used.append(f"GPU memory {format_bytes(found.peak_gpu_bytes)}")
    if found.gpu_utilisation is not None:
        used.append(f"GPU busy {found.gpu_utilisation:.0%}")
    if found.power_watts is not None:
        used.append(f"{found.power_watts:.0f} W")
    return [*lines, ("" if lines else "\n") + "used: " + ", ".join(used)] if used else lines


def _times(title: str, rows: tuple[TimeRow, ...], found: Indicators) -> Table:
    """By time on the device where there is one, else on the host."""
    on_gpu = found.device == "cuda"
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(title, no_wrap=True, max_width=60)
    headings = ("GPU time", "host time", "calls") if on_gpu else ("time", "calls")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows[:_MOST_ROWS]:
        times = [format_seconds(row.device_seconds)] if on_gpu else []
        table.add_row(row.name, *times, format_seconds(row.host_seconds), f"{row.calls:g}")
    return table

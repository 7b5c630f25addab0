"""The answer of a configuration server, for people."""

from __future__ import annotations

import sys
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tonnage.configure.configuration import HardwareConfiguration
from tonnage.configure.label import Label
from tonnage.units import format_bytes, format_seconds


def print_answer(label: Label, answer: dict[str, Any]) -> None:
    """Configuration, image, predicted time, and why; then everything that was considered. The server's text is not ours,
    so nothing in it is taken for markup."""
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    choice = answer["choice"]
    for name, value in _lines(label, choice):
        console.print(f"{name:<14} {escape(value)}", soft_wrap=True)
    for reason in choice.get("reasons", []):
        console.print(f"  {escape(str(reason))}", soft_wrap=True)
    console.print(_table(choice))
    for warning in answer.get("warnings", []):
        print(f"warning: {warning}", file=sys.stderr)


def _lines(label: Label, choice: dict[str, Any]) -> list[tuple[str, str]]:
    time = label.predicted
    seconds, low, high = (format_seconds(s) for s in (time.seconds, time.low_seconds, time.high_seconds))
    lines = [
        ("server", f"{label.server} (rules {label.rules_version})"),
        ("hardware", describe(label.hardware)),
        ("image", label.image.pinned),
        ("running time", f"{seconds} ({low} to {high}) for {time.steps:,} steps, basis: {choice.get('basis')}"),
    ]
    if choice.get("overruled"):
        chosen = HardwareConfiguration(**choice["rules_choice"])
        slower = choice["rules_run_seconds"] / choice["minimum_run_seconds"] - 1
        lines.append(("overruled", f"the rules would have chosen {chosen.name}, {slower * 100:.0f} % slower"))
    return lines


def describe(hardware: HardwareConfiguration) -> str:
    """In one line."""
    link = ""
    if hardware.pcie_generation and hardware.pcie_lanes:
        link = f" (PCIe {hardware.pcie_generation}.0 x{hardware.pcie_lanes})"
    plural = "s" if hardware.sockets > 1 else ""
    return (
        f"{hardware.name}{link}; {hardware.cpu_cores} cores on {hardware.sockets} socket{plural}, "
        f"{format_bytes(hardware.memory_bytes)}; {hardware.loader_workers} loader workers, "
        f"{'pinned' if hardware.pinned_memory else 'pageable'} memory"
    )


def _table(choice: dict[str, Any]) -> Table:
    table = Table("considered", "step", "run", "bound by", "why not", box=SIMPLE_HEAD, pad_edge=False)
    for one in choice.get("considered", []):
        step, run = one.get("step_seconds"), one.get("run_seconds")
        table.add_row(
            escape(str(one.get("name"))),
            format_seconds(step) if step else "-",
            format_seconds(run["value"]) if run else "-",
            escape(str(one.get("bound_by") or "-")),
            escape(str(one.get("reason"))) or "taken",
        )
    return table

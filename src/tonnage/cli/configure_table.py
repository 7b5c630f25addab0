"""The answer of a configuration server, for people."""

from __future__ import annotations

import sys

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tonnage.configure.configuration import HardwareConfiguration
from tonnage.configure.label import Label
from tonnage.service.bodies import ChoiceView, ConfigurationAnswer
from tonnage.service.client import printable
from tonnage.units import format_bytes, format_seconds


def print_answer(label: Label, answer: ConfigurationAnswer) -> None:
    """Configuration, image, predicted time, and why; then everything that was considered."""
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    for name, value in _lines(label, answer.choice):
        console.print(f"{name:<14} {_safe(value)}", soft_wrap=True)
    for reason in answer.choice.reasons:
        console.print(f"  {_safe(reason)}", soft_wrap=True)
    console.print(_table(answer.choice))


def _safe(text: str) -> str:
    """The server's text is not ours: neither markup nor control characters of it are obeyed."""
    return escape(printable(text))


def _lines(label: Label, choice: ChoiceView) -> list[tuple[str, str]]:
    time = label.predicted
    seconds, low, high = (format_seconds(s) for s in (time.seconds, time.low_seconds, time.high_seconds))
    lines = [
        ("server", f"{label.server} (rules {label.rules_version})"),
        ("hardware", describe(label.hardware)),
        ("image", label.image.pinned),
        ("running time", f"{seconds} ({low} to {high}) for {time.steps:,} steps, basis: {choice.basis}"),
    ]
    if choice.overruled:
        slower = choice.rules_run_seconds / choice.minimum_run_seconds - 1
        rejected = choice.rules_choice.value().name
        lines.append(("overruled", f"the rules would have chosen {rejected}, {slower * 100:.0f} % slower"))
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


def _table(choice: ChoiceView) -> Table:
    table = Table("considered", "step", "run", "bound by", "why not", box=SIMPLE_HEAD, pad_edge=False)
    for one in choice.considered:
        table.add_row(
            _safe(one.name),
            format_seconds(one.step_seconds) if one.step_seconds else "-",
            format_seconds(one.run_seconds.value) if one.run_seconds else "-",
            _safe(one.bound_by or "-"),
            _safe(one.reason) or "taken",
        )
    return table

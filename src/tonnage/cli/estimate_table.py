"""The report of `tonnage estimate` as a table for people."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tonnage.estimate.batches import format_batch
from tonnage.estimate.estimate import Estimate, Report, TimeEstimate, operation
from tonnage.estimate.page_text import WAITS
from tonnage.units import format_bytes, format_joules, format_seconds

_BAR = 10
_GAP = 2  # between columns
_WHERE = "where it fails"
_LESS_NEEDED = ("", "reserved", "allocated", "basis", "90 %", "power")  # the first to go on a narrow terminal
_NEGLIGIBLE = 1e-3  # parts of a step that are not worth a word
_COLOURS = {
    "parameters": "blue", "gradients": "cyan", "optimizer_state": "magenta", "activations": "green", "inputs": "yellow",
    "temporaries": "bright_black", "workspace": "red", "context": "white",
}  # fmt: skip


def print_report(report: Report) -> None:
    # A pipe has no width: give the table room instead of cutting it at 80 columns.
    console = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 240)
    console.print(_headline(report), soft_wrap=True)
    if report.estimates:
        console.print(_peak(_reference(report)), soft_wrap=True)
        _print_step(console, _reference(report))
    console.print(_gpus(report, console.width))
    for other in report.sweep:
        console.print(Text(f"\nbatch {other.batch}", style="bold"))
        console.print(_gpus(other, console.width))
    for warning in report.warnings:
        print(f"warning: {warning}", file=sys.stderr)


def _headline(report: Report) -> Text:
    fitting = {e.gpu: e.usable_bytes for e in report.estimates if e.fits}
    asked = {e.gpu for e in report.estimates}
    batch = f", batch {report.batch}" if report.batch else ""
    text = Text.assemble(
        (report.program, "bold"),
        f"  {report.mode}{batch}, {report.parameter_count / 1e6:,.1f} M parameters, {report.steps_traced} steps followed\n",
    )
    if not fitting:
        return text.append("does not fit\n" if len(asked) == 1 else "fits on none of the GPUs\n", style="bold red")
    if len(asked) == 1:
        return text.append("fits\n", style="green")
    smallest = min(fitting, key=lambda name: fitting[name])
    return text.append(f"fits on {len(fitting)} of {len(asked)} GPUs; the smallest is {smallest}\n")


def _reference(report: Report) -> Estimate:
    """One estimate to show what fills the memory: the best known one."""
    return next((e for e in report.estimates if e.basis != "specification"), report.estimates[0])


def _peak(estimate: Estimate) -> Text:
    """What fills the memory at the peak, largest first, and the three largest tensors."""
    text = Text(f"at the peak on {estimate.gpu}: ")
    parts = sorted(((v, k) for k, v in estimate.categories.items() if v), reverse=True)
    for number, (size, name) in enumerate(parts):
        text.append(", " if number else "")
        text.append(f"{name.replace('_', ' ')} {format_bytes(size)}", style=_COLOURS.get(name, ""))
    for tensor in estimate.largest[:3]:
        shape = "x".join(map(str, tensor.shape)) or tensor.category
        place = f" in {tensor.module}" if tensor.module else ""
        text.append(f"\n  {format_bytes(tensor.bytes):>9}  {operation(tensor.operator)} {shape}{place}")
    return text.append("\n")


def _print_step(console: Console, estimate: Estimate) -> None:
    """Where the time of a step goes, and what it waits for."""
    time = estimate.time
    if time is None:
        return
    parts = {
        "forward": time.forward_seconds.value, "backward": time.backward_seconds.value,
        "optimizer": time.optimizer_seconds.value, "copies to the GPU": time.h2d_seconds.value,
        "copies to the host": time.d2h_seconds.value, "waiting for other GPUs": time.network_seconds,
    }  # fmt: skip
    whole = time.step_seconds.value
    shown = ", ".join(f"{name} {format_seconds(part)}" for name, part in parts.items() if part > _NEGLIGIBLE * whole)
    console.print(
        f"a step on {_name(estimate)}: {format_seconds(whole)} ({shown}); {WAITS[time.bound_by]}, "
        f"kernels run for {time.utilisation:.0%} of it; {format_joules(time.energy_joules_step.value)}\n",
        soft_wrap=True,
    )


def _gpus(report: Report, width: int) -> Table:
    """As many columns as there is room for; `--json` has all."""
    columns = _columns(sorted(report.estimates, key=lambda e: (e.usable_bytes, e.gpu, e.gpu_count)))
    for heading in _LESS_NEEDED:
        if sum(_GAP + max(map(len, (name, *cells))) for name, cells in columns.items()) > width:
            columns.pop(heading, None)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in columns:
        left = heading in ("GPU", "fits", "", _WHERE)
        table.add_column(heading, justify="left" if left else "right", no_wrap=heading != _WHERE)
    for row in zip(*columns.values(), strict=True):
        table.add_row(*row)
    return table


def _columns(estimates: Sequence[Estimate]) -> dict[str, list[str | Text]]:
    """What is said about each GPU, by heading; what nobody asked for or nobody knows is left out."""
    columns: dict[str, list[str | Text]] = {
        "GPU": [_name(e) for e in estimates],
        "fits": [Text("yes", style="green") if e.fits else Text("no", style="red") for e in estimates],
        "needs": [format_bytes(e.device_bytes.value) for e in estimates],
        "at most": [format_bytes(e.device_bytes.high) for e in estimates],
        "of": [format_bytes(e.usable_bytes) for e in estimates],
        "": [_bar(e) for e in estimates],
        "allocated": [format_bytes(e.peak_allocated_bytes.value) for e in estimates],
        "reserved": [format_bytes(e.peak_reserved_bytes.value) for e in estimates],
        "step": [_step(e.time) for e in estimates],
        "90 %": [_bounds(e.time) for e in estimates],
        "power": [f"{e.time.power_watts.value:.0f} W" if e.time else "" for e in estimates],
        "basis": [e.time.basis if e.time else "" for e in estimates],
        "epoch": [_epoch(e.time) for e in estimates],
        "max batch": [format_batch(e.max_batch) for e in estimates],
        _WHERE: [_failure(e) for e in estimates],
    }
    return {heading: cells for heading, cells in columns.items() if any(map(len, cells))}


def _name(estimate: Estimate) -> str:
    return estimate.gpu if estimate.gpu_count == 1 else f"{estimate.gpu_count} x {estimate.gpu}"


def _step(time: TimeEstimate | None) -> str | Text:
    if time is None:
        return ""
    return Text(format_seconds(time.step_seconds.value), style="" if time.bound_by == "GPU" else "yellow")


def _bounds(time: TimeEstimate | None) -> str:
    return f"{format_seconds(time.step_seconds.low)} to {format_seconds(time.step_seconds.high)}" if time else ""


def _epoch(time: TimeEstimate | None) -> str:
    return format_seconds(time.epoch_seconds.value) if time is not None and time.epoch_seconds is not None else ""


def _bar(estimate: Estimate) -> Text:
    filled = min(round(_BAR * estimate.device_bytes.value / estimate.usable_bytes), _BAR)
    style = "green" if estimate.device_bytes.high <= estimate.usable_bytes else "yellow" if estimate.fits else "red"
    return Text.assemble(("━" * max(filled, 1), style), ("─" * (_BAR - max(filled, 1)), "bright_black"))


def _failure(estimate: Estimate) -> str:
    moment = estimate.out_of_memory
    if moment is None:
        return ""
    where = moment.module or operation(moment.operator)
    return ", ".join(part for part in (f"step {moment.step}", moment.phase, where) if part)

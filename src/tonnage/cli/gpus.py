"""`tonnage gpus`: the catalogue, one GPU with its sources, or the GPUs of this machine."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tonnage.hardware import Gpu, LocalGpu, LocalMachine, all_gpus, find_gpu, probe
from tonnage.units import format_bytes

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Names = Annotated[list[str] | None, typer.Argument(help="GPUs to show; one alone is shown with its sources.")]
Here = Annotated[bool, typer.Option("--here", help="Show the GPUs of this machine.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, in bytes, watts and seconds.")]


def gpus_command(names: Names = None, here: Here = False, as_json: AsJson = False) -> None:
    """List the GPUs that Tonnage knows, or those of this machine."""
    if here:
        machine = probe()
        _print_json(_machine_record(machine)) if as_json else _print_machine(machine)
        return
    gpus = [find_gpu(name) for name in names] if names else all_gpus()
    if as_json:
        _print_json([gpu_record(gpu) for gpu in gpus])
    elif names and len(gpus) == 1:
        _print_detail(gpus[0])
    else:
        _console().print(_catalogue_table(gpus))


def gpu_record(gpu: Gpu) -> dict[str, Any]:
    """One GPU as plain data, with the keys of the sources beside the figures."""
    record = asdict(gpu)
    record["sources"] = {group: [source.key for source in found] for group, found in gpu.sources.items()}
    return record


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2))


def _console() -> "Console":
    from rich.console import Console

    # A pipe has no width: give the tables room instead of cutting them at 80 columns.
    return Console(width=None if sys.stdout.isatty() else 160)


def _catalogue_table(gpus: Sequence[Gpu]) -> "Table":
    table = _table(
        "GPU", "architecture", right=("memory", "usable", "GB/s", "fp32", "tf32", "fp16", "bf16", "fp8", "W")
    )
    for gpu in gpus:
        rates = [_rate(gpu.tflops[dtype]) for dtype in ("fp32", "tf32", "fp16", "bf16", "fp8")]
        memory = (format_bytes(gpu.memory_bytes), format_bytes(gpu.usable_bytes))
        bandwidth = f"{gpu.bandwidth_bytes_second / 1e9:.0f}"
        table.add_row(gpu.name, gpu.architecture, *memory, bandwidth, *rates, str(gpu.tdp_watts))
    table.caption = "dense TFLOPS; `tonnage gpus NAME` shows every figure with its source"
    return table


def _table(*left: str, right: Sequence[str] = ()) -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, caption_justify="left")
    for name in left:
        table.add_column(name, no_wrap=True)
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _rate(tflops: float | None) -> str:
    return "-" if tflops is None else f"{tflops:.3g}" if tflops < 100 else f"{tflops:.0f}"


def _print_detail(gpu: Gpu) -> None:
    console = _console()
    console.print(f"[bold]{gpu.name}[/bold]  {gpu.vendor}, {gpu.architecture}, {gpu.compute_capability}")
    console.print(f"also called {', '.join(gpu.aliases)}", highlight=False)
    table = _table("figure", "value", "source")
    table.columns[2].no_wrap = False
    for name, value, group in _figures(gpu):
        table.add_row(name, value, "; ".join(f"{source.vendor}: {source.title}" for source in gpu.sources[group]))
    if gpu.price:
        source = gpu.price.source
        table.add_row(
            "price", f"{gpu.price.usd_hour:.3g} USD an hour, {gpu.price.date}", f"{source.vendor}: {source.title}"
        )
    console.print(table)
    if gpu.note:
        console.print(f"Note: {gpu.note}.", highlight=False)


def _figures(gpu: Gpu) -> list[tuple[str, str, str]]:
    rates = ", ".join(f"{dtype} {_rate(rate)}" for dtype, rate in gpu.tflops.items() if rate)
    link = gpu.peer_link
    peer = f", {link.kind} {link.generation} {link.bytes_second / 1e9:g} GB/s" if link else ""
    return [
        ("compute units" if gpu.vendor == "amd" else "SMs", str(gpu.sms), "sms"),
        ("clock", f"{gpu.base_clock_mhz} to {gpu.boost_clock_mhz} MHz", "clocks"),
        ("dense TFLOPS", rates, "compute"),
        ("memory", f"{format_bytes(gpu.memory_bytes)} {gpu.memory_type}", "total"),
        ("usable", format_bytes(gpu.usable_bytes), "usable"),
        ("context", format_bytes(gpu.context_bytes), "context"),
        ("bandwidth", f"{gpu.bandwidth_bytes_second / 1e9:g} GB/s", "bandwidth"),
        ("L2 cache", format_bytes(gpu.l2_bytes), "cache"),
        ("power", f"{gpu.tdp_watts} W", "power"),
        ("links", f"PCIe {gpu.pcie_generation} x{gpu.pcie_lanes}{peer}", "links"),
    ]


def _machine_record(machine: LocalMachine) -> dict[str, Any]:
    record = asdict(machine)
    for entry, local in zip(record["gpus"], machine.gpus, strict=True):
        entry["gpu"] = local.gpu.name if local.gpu else None
    return record


def _print_machine(machine: LocalMachine) -> None:
    console = _console()
    console.print(f"driver {machine.driver_version}, CUDA {machine.cuda_version}", highlight=False)
    table = _table("index", "GPU", "catalogue", right=("memory", "used", "PCIe", "power limit", "clock"))
    for gpu in machine.gpus:
        table.add_row(*_machine_row(gpu))
    console.print(table)


def _machine_row(gpu: LocalGpu) -> tuple[str, ...]:
    return (
        str(gpu.index),
        gpu.name,
        gpu.gpu.name if gpu.gpu else "not in the catalogue",
        format_bytes(gpu.memory_bytes),
        format_bytes(gpu.used_bytes),
        f"{gpu.pcie_generation or '?'} x{gpu.pcie_lanes or '?'}",
        "?" if gpu.power_limit_watts is None else f"{gpu.power_limit_watts:.0f} W",
        f"{gpu.sm_clock_mhz or '?'} of {gpu.max_sm_clock_mhz or '?'} MHz",
    )

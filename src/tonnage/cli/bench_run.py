"""`tonnage bench run`: measure a campaign on this machine, into the benchmark database."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from tonnage.cli.bench_data import AsJson, Where

if TYPE_CHECKING:
    from tonnage.benchmark.campaign import Campaign
    from tonnage.benchmark.progress import Report


class Device(StrEnum):
    """Where to measure."""

    AUTO = "auto"
    CUDA = "cuda"
    CPU = "cpu"


class Again(StrEnum):
    """What to measure once more."""

    FAILED = "failed"


CampaignName = Annotated[str, typer.Argument(help="default, quick, or a campaign file.")]
DeviceName = Annotated[Device, typer.Option("--device", help="cuda, cpu, or auto: a GPU where there is one.")]
Budget = Annotated[
    str | None, typer.Option("--budget", help="Time for measuring, such as 10min or 2h; else the campaign's.")
]
GpuIndex = Annotated[int, typer.Option("--gpu-index", min=0, help="Which GPU, as `tonnage gpus --here` counts them.")]
AgainWhat = Annotated[Again | None, typer.Option("--again", help="failed: also measure what failed before.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="List what would be measured, and measure nothing.")]


def run_command(
    campaign: CampaignName = "default",
    device: DeviceName = Device.AUTO,
    budget: Budget = None,
    database: Where = None,
    gpu_index: GpuIndex = 0,
    again: AgainWhat = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    """Measure sample workloads and single layers on this machine; what is in the database already is passed over."""
    from tonnage.benchmark.campaign_file import find_campaign
    from tonnage.cli.durations import read_duration

    chosen, budget_seconds = find_campaign(campaign), read_duration("--budget", budget)
    if dry_run:
        _list_jobs(chosen, as_json)
        return 0
    from tonnage.benchmark.runner import Settings, run_campaign
    from tonnage.cli.bench_progress import watching
    from tonnage.cli.stopping import StopWish
    from tonnage.store.database import open_database

    settings = Settings(
        device=device, gpu_index=gpu_index, budget_seconds=budget_seconds, again_failed=again is Again.FAILED
    )
    with open_database(database) as opened, StopWish() as stop, watching() as watcher:
        report = run_campaign(chosen, opened, settings, watcher=watcher, should_stop=stop)
    _print_json(report) if as_json else _print(report)
    return _exit_code(report)


def _list_jobs(campaign: Campaign, as_json: bool) -> None:
    from tonnage.benchmark.campaign import points
    from tonnage.benchmark.work import arrange, in_full

    jobs = [job for batch in arrange(points(campaign), campaign.layers) for job in batch]
    if as_json:
        listed = [{"key": job.key, "what": in_full(job)} for job in jobs]
        typer.echo(json.dumps({"campaign": campaign.name, "jobs": listed}, indent=2))
        return
    for job in jobs:
        typer.echo(f"{job.key}  {in_full(job)}")
    layers = len(campaign.layers)
    typer.echo(f"{campaign.name}: {len(jobs) - layers} points and {layers} layers; nothing was measured", err=True)


# -- what comes out -------------------------------------------------------------------------------------------------------


def _print_json(report: Report) -> None:
    from dataclasses import asdict

    document = asdict(report) | {"failures": _failures(report)}
    typer.echo(json.dumps(document, indent=2))


def _failures(report: Report) -> list[dict[str, str]]:
    rows = [measured.measurement for measured in report.failures]
    return [{"key": row.key, "family": row.family, "status": row.status, "message": row.message} for row in rows]


def _print(report: Report) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from tonnage.cli.bench_progress import format_duration

    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    where = (report.environment.gpu or report.environment.cpu) if report.environment else "this machine"
    console.print(f"{escape(report.campaign)} on {escape(where)}, {format_duration(report.seconds)}", soft_wrap=True)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    counts = {"ok": report.ok, "out of memory": report.out_of_memory, "failed": report.failed,
              "skipped": report.skipped, "left": report.left, "kernels": report.kernels}  # fmt: skip
    for heading in counts:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_row(*map(str, counts.values()))
    console.print(table)
    console.print(f"database: {escape(report.database)}", soft_wrap=True)
    if report.ok or report.skipped > report.failed_before:
        console.print("next: tonnage fit")


def _exit_code(report: Report) -> int:
    """Notes about what is not there, and 130 if somebody interrupted."""
    from tonnage.benchmark.progress import Ending

    if report.failed_before:
        typer.echo(f"note: {report.failed_before} failed before; --again failed measures them once more", err=True)
    if report.ending is Ending.OUT_OF_TIME:
        typer.echo(f"note: time is up, {report.left} are left; the same command measures them", err=True)
    if report.ending is Ending.INTERRUPTED:
        typer.echo(f"note: all that was measured is kept, {report.left} are left; the same command goes on", err=True)
        return 130
    return 0

"""`tonnage bench show`, `export` and `import`: what is in the benchmark database, out of it and into it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tonnage.errors import InvalidFile, NotFound

if TYPE_CHECKING:
    from tonnage.store.database import Summary
    from tonnage.store.exchange import ImportReport

Where = Annotated[
    str | None,
    typer.Option(
        "--database", help="A file, or postgresql://USER@HOST/DATABASE; else TONNAGE_DATABASE, else your own."
    ),
]
GpuName = Annotated[str | None, typer.Option("--gpu", "-g", help="Only this GPU; cpu for runs without one.")]
Family = Annotated[str | None, typer.Option("--family", help="Only this family of networks.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Target = Annotated[str, typer.Argument(help="A new folder; its name ends in .parquet, .csv.gz or .csv.")]
Source = Annotated[
    str, typer.Argument(help="A folder that export made, or one file of it; shipped: the package's own rows.")
]

_SHOWN_REFUSALS = 20


def show_command(gpu: GpuName = None, family: Family = None, database: Where = None, as_json: AsJson = False) -> None:
    """Count what has been measured, by GPU, family and status."""
    from tonnage.store.database import open_database

    with open_database(database, create=False) as opened:
        summaries = opened.summary(gpu=_catalogue_name(gpu), family=family)
        name, counts = opened.name, opened.counts()
    if as_json:
        groups = [_record(summary) for summary in summaries]
        typer.echo(json.dumps({"database": name, "rows": counts, "groups": groups}, indent=2))
    else:
        _print_summaries(name, summaries)


def export_command(path: Target, database: Where = None, as_json: AsJson = False) -> None:
    """Write all rows into a new folder, as Parquet or CSV."""
    from tonnage.store.database import open_database
    from tonnage.store.exchange import export_rows

    with open_database(database, create=False) as opened:
        counts = export_rows(opened, path)
    if as_json:
        typer.echo(json.dumps({"path": path, "rows": counts}, indent=2))
    else:
        typer.echo(f"{path}: {', '.join(f'{count} {table}' for table, count in counts.items())}")


def import_command(path: Source, database: Where = None, as_json: AsJson = False) -> None:
    """Take in rows that were exported elsewhere; rows that are there already are passed over."""
    from tonnage.benchmark import shipped
    from tonnage.store.database import open_database
    from tonnage.store.exchange import find_files, import_rows

    path = str(shipped.ROWS) if path == shipped.NAME else path
    find_files(Path(path).expanduser())  # first, so that a misspelt name makes no database
    with open_database(database) as opened:
        report = import_rows(opened, path)
    _print_report_json(report) if as_json else _print_report(report)
    if report.refusals:
        count = len(report.refusals)
        message = f"{count} row{' was' if count == 1 else 's were'} refused; the others are in the database"
        raise InvalidFile(message, "correct them and import again: rows that are there already are passed over")


def _catalogue_name(gpu: str | None) -> str | None:
    """As the database spells it; a GPU that the catalogue does not know is taken as typed."""
    if gpu is None or gpu.lower() == "cpu":
        return "" if gpu else None
    from tonnage.hardware import find_gpu

    try:
        return find_gpu(gpu).name
    except NotFound:
        return gpu


def _record(summary: Summary) -> dict[str, object]:
    from dataclasses import asdict

    times = {"first_at": summary.first_at.isoformat(), "last_at": summary.last_at.isoformat()}
    return asdict(summary) | times


def _print_summaries(name: str, summaries: list[Summary]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 160)
    measured = sum(summary.measurements for summary in summaries)
    console.print(
        f"{escape(name)}: {measured} measurement{'' if measured == 1 else 's'}", highlight=False, soft_wrap=True
    )
    if not summaries:
        return
    table = Table("GPU", "family", "status", box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("measurements", "kernels", "first", "last"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in summaries:
        dates = (f"{row.first_at:%Y-%m-%d}", f"{row.last_at:%Y-%m-%d}")
        texts = (escape(row.gpu) or "CPU", escape(row.family), row.status)
        table.add_row(*texts, str(row.measurements), str(row.kernels), *dates)
    console.print(table)


def _print_report(report: ImportReport) -> None:
    for table, tally in report.tables.items():
        typer.echo(f"{table}: {tally.added} added, {tally.known} known already, {tally.refused} refused")
    for gpu in report.unknown_gpus:
        typer.echo(f"note: the catalogue does not know the GPU {gpu!r}; its rows are kept all the same", err=True)
    for refusal in report.refusals[:_SHOWN_REFUSALS]:
        typer.echo(f"refused: {refusal}", err=True)
    if len(report.refusals) > _SHOWN_REFUSALS:
        typer.echo(f"... and {len(report.refusals) - _SHOWN_REFUSALS} more; --json lists all", err=True)


def _print_report_json(report: ImportReport) -> None:
    from dataclasses import asdict

    typer.echo(json.dumps(asdict(report), indent=2))

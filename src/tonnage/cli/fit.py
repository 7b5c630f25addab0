"""`tonnage fit`: learn from the benchmark database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tonnage.cli.bench_data import AsJson, Where

if TYPE_CHECKING:
    from tonnage.benchmark.refit import Verdict
    from tonnage.estimate.time_model import TimeModel


def fit_command(
    database: Where = None,
    output: Annotated[Path | None, typer.Option(help="Write the model here, not where estimates look for it.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Use the new model even if it is not better.")] = False,
    as_json: AsJson = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,  # noqa: ARG001  (see main.py)
) -> int:
    """Fit the time model to what was measured; estimates use it if it is better than the one before.

    Measure first: tonnage bench run
    """
    from tonnage.benchmark.refit import refit
    from tonnage.benchmark.time_models import own_model_path, write_model
    from tonnage.cli.output import progress
    from tonnage.store.database import open_database

    path = output or own_model_path()
    with progress() as say, open_database(database, create=False) as opened:
        model, verdict = refit(opened, _model_in_use(), say)
    kept = verdict.is_better or force or output is not None
    if kept:
        write_model(model, path)
    if as_json:
        import json

        print(json.dumps({**verdict.as_dict(), "written": str(path) if kept else None}))
    else:
        _print(verdict, path if kept else None)
    return 0


def _model_in_use() -> TimeModel:
    """What estimates use; a file that is missing, damaged or of another version is about to be written."""
    from tonnage.benchmark.time_models import current_model, shipped_model
    from tonnage.errors import InvalidFile, NotFound

    try:
        return current_model()
    except (InvalidFile, NotFound):
        return shipped_model()


def _print(verdict: Verdict, path: Path | None) -> None:
    import sys

    from rich.console import Console
    from rich.table import Table

    console = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 120)
    console.print(
        f"{verdict.measurements} measurements on {', '.join(verdict.gpus)}; "
        f"{verdict.held_back} of them were held back to judge the rest\n"
    )
    errors = Table(box=None, pad_edge=False, header_style="bold")
    errors.add_column("error on those held back")
    for heading in ("before", "now"):
        errors.add_column(heading, justify="right")
    for name, now in verdict.new.items():
        errors.add_row(name.replace("_", " "), f"{verdict.old.get(name, float('nan')):.1%}", f"{now:.1%}")
    console.print(errors, "")
    kinds = Table(box=None, pad_edge=False, header_style="bold")
    kinds.add_column("kernels longer than 10 us")
    for heading in ("rows", "median", "by time", "bias"):
        kinds.add_column(heading, justify="right")
    for kind in verdict.kinds:
        name = kind.kind.replace("_", " ")
        kinds.add_row(name, f"{kind.rows}", f"{kind.median:.1%}", f"{kind.time_weighted:.1%}", f"{kind.bias:+.1%}")
    console.print(kinds)
    stays = "it is not better than the model in use, which stays (--force overrides)"
    console.print(f"\nwritten: {path}" if path else f"\n{stays}", markup=False, soft_wrap=True)

"""`tonnage fit`: learn from the benchmark database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tonnage.benchmark.refit import Verdict


def fit_command(
    database: Annotated[str, typer.Option(help="A file or a postgresql:// URL; the user's own by default.")] = "",
    output: Annotated[Path | None, typer.Option(help="Write the model here, not where estimates look for it.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Use the new model even if it is not better.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,  # noqa: ARG001  (see main.py)
) -> int:
    """Fit the time model to what was measured; estimates use it if it is better than the one before.

    Measure first: tonnage bench run
    """
    from tonnage.benchmark.refit import refit
    from tonnage.benchmark.time_models import current_model, own_model_path, write_model
    from tonnage.cli.output import progress
    from tonnage.store.database import open_database

    path = output or own_model_path()
    with progress() as say, open_database(database or None, create=False) as opened:
        model, verdict = refit(opened, current_model(), say)
    kept = verdict.is_better or force or output is not None
    if kept:
        write_model(model, path)
    if as_json:
        import json

        print(json.dumps({**verdict.as_dict(), "written": str(path) if kept else None}))
    else:
        _print(verdict, path if kept else None)
    return 0


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
    for heading in ("median error on rows held back", "before", "now"):
        errors.add_column(heading, justify="left" if heading.startswith("median") else "right")
    for name, now in verdict.new.items():
        errors.add_row(name.replace("_", " "), f"{verdict.old.get(name, float('nan')):.1%}", f"{now:.1%}")
    console.print(errors)
    kinds = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("\nkernels longer than 10 us", "rows", "median", "by time", "bias"):
        kinds.add_column(heading, justify="left" if "kernels" in heading else "right")
    for kind in verdict.kinds:
        name = kind.kind.replace("_", " ")
        kinds.add_row(name, f"{kind.rows}", f"{kind.median:.1%}", f"{kind.time_weighted:.1%}", f"{kind.bias:+.1%}")
    console.print(kinds)
    stays = "it is not better than the model in use, which stays (--force overrides)"
    console.print(f"\nwritten: {path}" if path else f"\n{stays}")

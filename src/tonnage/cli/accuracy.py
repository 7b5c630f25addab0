"""`tonnage accuracy`: estimation models beside each other, on rows that they have not seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tonnage.cli.bench_data import AsJson, Where

if TYPE_CHECKING:
    from tonnage.benchmark.scores import Score


def accuracy_command(
    database: Where = None,
    families: Annotated[bool, typer.Option("--families", help="Also for each family of workloads.")] = False,
    as_json: AsJson = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,  # noqa: ARG001  (see main.py)
) -> int:
    """Compare the kernel model and the cluster regression on measured sample workloads.

    Five-fold: each model is fitted to four fifths of the workloads and predicts the rest.
    """
    from tonnage.benchmark.comparison import compare
    from tonnage.benchmark.time_models import shipped_model
    from tonnage.cli.output import progress
    from tonnage.store.database import open_database

    with progress() as say, open_database(database, create=False) as opened:
        scores = compare(opened, shipped_model(), say)
    if as_json:
        import json

        print(json.dumps([score.as_dict() for score in scores]))
    else:
        _print([score for score in scores if families or score.family == "all"])
    return 0


def _print(scores: list[Score]) -> None:
    import sys

    from rich.console import Console
    from rich.table import Table

    console = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 140)
    models = list(dict.fromkeys(score.model for score in scores))
    for family in dict.fromkeys(score.family for score in scores):
        table = Table(box=None, pad_edge=False, header_style="bold", title=f"\n{family}", title_justify="left")
        table.add_column("error: median, 90th percentile; inside the 90 % interval")
        for model in models:
            table.add_column(model, justify="right")
        for quantity in dict.fromkeys(score.quantity for score in scores):
            found = {s.model: s for s in scores if (s.family, s.quantity) == (family, quantity)}
            cells = [_cell(found.get(model)) for model in models]
            table.add_row(quantity.replace("_", " "), *cells)
        console.print(table)


def _cell(score: Score | None) -> str:
    return "" if score is None else f"{score.median:.1%}, {score.ninetieth:.1%}; {score.covered:.0%}"

"""`tonnage fit`: learn from the benchmark database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tonnage.cli.bench_data import AsJson, Where

if TYPE_CHECKING:
    from rich.table import Table

    from tonnage.benchmark.scores import Score
    from tonnage.benchmark.verdict import Verdict
    from tonnage.estimate.time_model import TimeModel


def fit_command(
    database: Where = None,
    output: Annotated[Path | None, typer.Option(help="Write the model here, not where estimates look for it.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Use the new model even if it is not better.")] = False,
    as_json: AsJson = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,  # noqa: ARG001  (see main.py)
) -> int:
    """Fit the time model to what was measured; estimates use it if it is better than the one before.

    Errors are those on families of networks, and on GPUs, that the fit had not seen. It takes some minutes.

    Measure first: tonnage bench run
    """
    from tonnage.benchmark.refit import refit
    from tonnage.benchmark.time_models import own_model_path, require_place, write_model
    from tonnage.cli.output import progress
    from tonnage.store.database import open_database

    path = output or own_model_path()
    require_place(path)
    with progress() as say, open_database(database, create=False) as opened:
        verdict, model = refit(
            opened, _model_in_use(), lambda verdict: verdict.is_better or force or output is not None, say
        )
    if model is not None:
        write_model(model, path)
    if as_json:
        import json

        print(json.dumps({**verdict.as_dict(), "written": None if model is None else str(path)}))
    else:
        _print(verdict, None if model is None else path)
    return 0


def _model_in_use() -> TimeModel:
    """What estimates use; a file that is missing, damaged or of another version is about to be written."""
    from tonnage.benchmark.time_models import current_model, shipped_model
    from tonnage.errors import InvalidFile, NotFound

    try:
        return current_model()
    except (InvalidFile, NotFound):
        return shipped_model()


# -- what comes out -------------------------------------------------------------------------------------------------------


def _print(verdict: Verdict, path: Path | None) -> None:
    import sys

    from rich.console import Console

    console = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 120)
    known = f"; kernels of {', '.join(verdict.shipped_gpus)} come with the package" if verdict.shipped_gpus else ""
    console.print(
        f"{verdict.measurements:,} measurements on {', '.join(verdict.gpus)}, "
        f"{verdict.steps:,} of them timed steps{known}\n",
        markup=False,
        soft_wrap=True,
    )
    for table in _tables(verdict):
        console.print(table, "")
    judgement = verdict.judgement
    ending = f"written: {path}" if path else "the model in use stays (--force overrides)"
    console.print(f"{judgement.basis}\n{judgement.reason}\n{ending}", markup=False, soft_wrap=True)


def _tables(verdict: Verdict) -> Iterable[Table]:
    together = [score for score in verdict.scores if score.family == "all"]
    steps = [s for s in verdict.scores if s.family != "all" and s.quantity == "step_seconds"]
    shares = ("median", "90th percentile", "in interval")
    by_family = len(verdict.held_back) > 1
    what = "families" if by_family else "every fifth row"
    yield _table((f"error, {what} left out", "steps", *shares), [(_words(s.quantity), *_cells(s)) for s in together])
    if by_family:
        yield _table(("step of a family left out", "steps", *shares), [(s.family, *_cells(s)) for s in steps])
    if verdict.gpus_left_out:
        yield _table(
            ("kernels of a GPU left out", "kernels", "median", "by time"),
            [(g, f"{e.rows:,}", f"{e.median:.1%}", f"{e.time_weighted:.1%}") for g, e in verdict.gpus_left_out.items()],
        )
    old, new = verdict.judgement.old, verdict.judgement.new
    yield _table(
        ("error of both models", "in use", "new"),
        [(_words(name), f"{old[name]:.1%}", f"{new[name]:.1%}") for name in new if name in old],
    )


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(headings[0], min_width=30)
    for heading in headings[1:]:
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def _words(quantity: str) -> str:
    """`step_seconds` as `step`."""
    names = {"kernel_seconds": "kernels", "energy_joules_step": "energy"}
    return names.get(quantity, quantity.removesuffix("_seconds"))


def _cells(score: Score) -> tuple[str, ...]:
    return f"{score.rows}", f"{score.median:.1%}", f"{score.ninetieth:.1%}", f"{score.covered:.0%}"

"""`tonnage serve tune`: how many instances and how large batches suit a model here."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tonnage.serve.tuning import Tuned


def tune_command(
    models: Annotated[Path, typer.Argument(help="The folder of models.")],
    model: Annotated[list[str] | None, typer.Option("--model", "-m", help="Only this one; may be repeated.")] = None,
    instances: Annotated[str, typer.Option(help="Numbers of instances to try.")] = "1,2,4,8",
    batch: Annotated[str, typer.Option(help="Largest batches to try.")] = "1,2,4,8",
    seconds: Annotated[float, typer.Option(help="How long each combination is measured.", min=0.1)] = 2.0,
    device: Annotated[str, typer.Option(help="cpu, cuda for all GPUs, or cuda:0,2 for some.")] = "cpu",
    shape: Annotated[
        list[str] | None, typer.Option(help="NAME=1,3,224,224, of an input whose size the model leaves open.")
    ] = None,
    p99: Annotated[str, typer.Option(help="99 % of all answers must come within this time, such as 20ms.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Measure and print, and write nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,  # noqa: ARG001  (see main.py)
) -> None:
    """Try numbers of instances and sizes of batches, and write the best into the configuration of each model.

    Clients ask without pause: what is measured is how much the model can do, not how long one alone waits.
    """
    from tonnage.serve.configuration_text import write_configuration
    from tonnage.serve.repository import Repository
    from tonnage.serve.settings import gpus_of

    repository = Repository(models)
    folders = [repository.model(name) for name in model] if model else list(repository.models().values())
    shapes = dict(map(_shape, shape or []))
    limit = _seconds(p99)
    found = []
    for folder in folders:
        tuned = _tune(
            folder,
            _counts("--instances", instances),
            _counts("--batch", batch),
            seconds,
            gpus_of(device),
            shapes,
            limit,
        )
        found.append(tuned)
        written = None if dry_run else write_configuration(tuned.configuration, folder.path)
        if not as_json:
            _print(tuned, written)
    if as_json:
        print(json.dumps({"models": [_document(each) for each in found]}, indent=2))


def _tune(
    folder: Any, instances: list[int], batches: list[int], seconds: float, gpus: Any, shapes: Any, limit: float | None
) -> Tuned:
    import asyncio

    import uvloop

    from tonnage.cli.output import progress
    from tonnage.serve.tuning import tune

    with progress() as say, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(
            tune(
                folder,
                instances=instances,
                batches=batches,
                seconds=seconds,
                gpus=gpus,
                shapes=shapes,
                most_p99_seconds=limit,
                progress=say,
            )
        )


def _print(tuned: Tuned, written: Path | None) -> None:
    from rich.console import Console
    from rich.table import Table

    from tonnage.units import format_seconds

    table = Table(title=tuned.model, title_justify="left")
    for name in ("instances", "batch", "rows/s", "median", "p99", ""):
        table.add_column(name, justify="left" if not name else "right")
    for trial in tuned.trials:
        numbers = ("", "", "") if trial.problem else (
            f"{trial.rows_second:,.0f}", format_seconds(trial.median_seconds), format_seconds(trial.p99_seconds),
        )  # fmt: skip
        note = trial.problem or ("best" if trial is tuned.best else "")
        table.add_row(str(trial.instances), str(trial.batch), *numbers, note)
    console = Console()
    console.print(table)
    if written is not None:
        console.print(f"written to {written}")


def _document(tuned: Tuned) -> dict[str, Any]:
    return {"model": tuned.model, "best": asdict(tuned.best), "trials": [asdict(trial) for trial in tuned.trials]}


def _counts(option: str, text: str) -> list[int]:
    from tonnage.errors import UsageError

    try:
        found = sorted({int(part) for part in text.split(",")})
    except ValueError:
        found = []
    if not found or found[0] < 1 or found[-1] > 256:
        raise UsageError(f"{option} {text} is no list of numbers from 1 to 256", f"for example: {option} 1,2,4,8")
    return found


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    from tonnage.errors import UsageError

    name, _, sizes = text.rpartition("=")
    try:
        shape = tuple(int(size) for size in sizes.split(","))
    except ValueError:
        shape = ()
    if not name or not shape or min(shape) < 1:
        raise UsageError(f"--shape {text} is no name with sizes", "for example: --shape data=1,3,224,224")
    return name, shape


def _seconds(text: str) -> float | None:
    from tonnage.errors import UsageError
    from tonnage.hardware.quantities import parse_seconds

    try:
        return parse_seconds(text) if text else None
    except ValueError as error:
        raise UsageError(f"--p99 {text}: {error}") from None

"""`tonnage serve tune`: how many instances and how large batches suit a model here."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tonnage.serve.repository import ModelFolder
    from tonnage.serve.tuning import Trial, Tuned


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
) -> int:
    """Try numbers of instances and sizes of batches, and write the best into the configuration of each model.

    Clients ask without pause: what is measured is how much the model can do, not how long one alone waits. The best is
    the simplest of those that are within 3 % of the most rows a second. The configuration before is kept beside it.
    """
    from tonnage.errors import TonnageError
    from tonnage.serve.settings import gpus_of

    folders = _folders(models, model)
    counts, batches = _counts("--instances", instances), _counts("--batch", batch)
    options = {"seconds": seconds, "gpus": gpus_of(device), "shapes": dict(map(_shape, shape or []))}
    limit = _seconds(p99)
    documents, code = [], 0
    for folder in folders:
        try:
            tuned = _tune(folder, counts, batches, limit, options)
            documents.append(_tell(folder, tuned, limit, dry_run=dry_run, as_json=as_json))
        except TonnageError as error:
            if len(folders) == 1 and not as_json:
                raise
            documents.append({"model": folder.name, "best": None, "trials": [], "problem": error.message})
            code = code or error.exit_code
            print(f"error: {folder.name}: {error.message}", file=sys.stderr)
            continue
        code = code or (0 if tuned.best is not None else 3)
    if as_json:
        print(json.dumps({"models": documents}, indent=2))
    return code


def _folders(path: Path, names: list[str] | None) -> list[ModelFolder]:
    from tonnage.cli.serve import check_folder
    from tonnage.errors import NotFound
    from tonnage.serve.repository import Repository

    check_folder(path)
    found = Repository(path).models()
    for name in names or []:
        if name not in found:
            raise NotFound(f"{path} has no model {name}", f"there is {', '.join(found) or 'none'}")
    if not found:
        raise NotFound(f"there are no models in {path}", "expected folders such as MODEL/1/model.onnx")
    return [found[name] for name in dict.fromkeys(names or found)]


def _tune(
    folder: ModelFolder, counts: list[int], batches: list[int], limit: float | None, options: dict[str, Any]
) -> Tuned:
    from tonnage.cli.output import progress
    from tonnage.cli.serve import event_loop
    from tonnage.serve.configuration_file import read_configuration
    from tonnage.serve.tuning import tune
    from tonnage.serve.tuning_bench import ModelBench

    base, bench = read_configuration(folder), ModelBench(folder=folder, **options)
    with progress() as say, event_loop() as runner:
        work = tune(base, bench, instances=counts, batches=batches, most_p99_seconds=limit, progress=say)
        return runner.run(work)


def _tell(folder: ModelFolder, tuned: Tuned, limit: float | None, *, dry_run: bool, as_json: bool) -> dict[str, Any]:
    from tonnage.serve.configuration_text import write_configuration

    if not as_json:
        _print(folder.name, tuned)
    problem = "" if tuned.best is not None else _problem(folder.name, tuned, limit)
    if problem:
        print(f"error: {problem}", file=sys.stderr)
    elif not dry_run:
        path = write_configuration(tuned.configuration, folder.path)
        print(f"written: {path}{_note(tuned)}", file=sys.stderr)
    best = None if tuned.best is None else asdict(tuned.best)
    return {
        "model": folder.name,
        "best": best,
        "trials": [asdict(trial) for trial in tuned.trials],
        "problem": problem,
    }


def _problem(name: str, tuned: Tuned, limit: float | None) -> str:
    from tonnage.units import format_seconds

    quickest = min((trial.p99_seconds for trial in tuned.trials if not trial.problem), default=None)
    if quickest is None or limit is None:
        return f"{name}: no combination could be tried: {tuned.trials[0].problem}"
    return f"{name}: none answers 99 % within {format_seconds(limit)}; the quickest needs {format_seconds(quickest)}"


def _note(tuned: Tuned) -> str:
    """A smaller batch also limits what a client may send at once."""
    before, after = tuned.before.max_batch_size, tuned.configuration.max_batch_size
    return f"; a request may have {after} rows now, {before} before" if after < before else ""


def _print(name: str, tuned: Tuned) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=name, title_justify="left", box=None, header_style="", pad_edge=False)
    for column in ("instances", "batch", "rows/s", "median", "p99"):
        table.add_column(column, justify="right")
    table.add_column("", justify="left", overflow="fold")
    for trial in tuned.trials:
        table.add_row(*_cells(trial), trial.problem or ("best" if trial is tuned.best else ""))
    Console().print(table)


def _cells(trial: Trial) -> list[str]:
    from tonnage.units import format_seconds

    combination = [str(trial.instances), str(trial.batch)]
    if trial.problem:
        return [*combination, "", "", ""]
    rows = f"{trial.rows_second:,.0f}" if trial.rows_second >= 100 else f"{trial.rows_second:.3g}"
    return [*combination, rows, format_seconds(trial.median_seconds), format_seconds(trial.p99_seconds)]


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
        raise UsageError(f"--p99 {text}: {error}", "for example: --p99 20ms") from None

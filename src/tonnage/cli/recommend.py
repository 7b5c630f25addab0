"""`tonnage recommend`: the smallest configuration that keeps a promise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tonnage.estimate.recommend import Configuration, Recommendation

_SHOWN = 5  # alternatives and rejected ones in the table


def recommend_command(
    program: Annotated[
        str, typer.Argument(help="A script, module:function, an ONNX file, a prototxt or a saved trace.")
    ],
    arguments: Annotated[list[str] | None, typer.Argument(help="The script's own arguments, after --.")] = None,
    deadline: Annotated[
        str | None, typer.Option(help="The run must end within this time, such as 90min, 6h or 2d.")
    ] = None,
    max_gpus: Annotated[int, typer.Option(help="At most so many GPUs.", min=1)] = 1,
    max_cost: Annotated[float | None, typer.Option(help="The run may cost so many US dollars.")] = None,
    max_energy: Annotated[float | None, typer.Option(help="The run may use so many kilowatt-hours.")] = None,
    steps: Annotated[
        int, typer.Option(help="Steps of the run, as one GPU would take them; instead of epochs.", min=0)
    ] = 0,
    epochs: Annotated[float, typer.Option(help="Epochs of the run.", min=0)] = 1.0,
    samples: Annotated[
        int, typer.Option(help="Samples in an epoch; else as the program's data loader says.", min=0)
    ] = 0,
    gpu: Annotated[list[str] | None, typer.Option("--gpu", "-g", help="Consider this GPU; may be repeated.")] = None,
    shard: Annotated[str, typer.Option(help="How several GPUs share the work: ddp, zero1, zero2 or zero3.")] = "ddp",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,  # noqa: ARG001  (see main.py)
) -> int:
    """Find the smallest configuration that runs PROGRAM within your limits.

    The upper bound of the estimate has to keep the promise, not only its best value.
    """
    from tonnage.api import recommend
    from tonnage.cli.durations import read_duration
    from tonnage.cli.output import progress

    deadline_seconds = read_duration("--deadline", deadline)
    with progress() as say:
        answer = recommend(
            program, arguments=arguments or (), deadline_seconds=deadline_seconds, most_gpus=max_gpus,
            most_usd=max_cost, most_kilowatt_hours=max_energy, total_steps=steps, epochs=epochs, samples=samples,
            gpus=gpu or (), shard=shard, progress=say,
        )  # fmt: skip
    if as_json:
        import json

        print(json.dumps(answer.as_dict()))
    else:
        _print(answer)
    return 0


def _print(answer: Recommendation) -> None:
    import sys

    from rich.console import Console

    from tonnage.units import format_seconds

    console = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 160)
    chosen = answer.chosen
    console.print(
        answer.program, f"  {answer.limits.steps:,.10g} steps of one GPU", sep="", markup=False, soft_wrap=True
    )
    console.print(
        f"[bold]{chosen.name}[/bold]: {format_seconds(chosen.seconds.value)}, at most {format_seconds(chosen.seconds.high)}"
    )
    _print_some(console, (chosen, *answer.alternatives), "keeps the promise")
    _print_some(console, answer.rejected, "does not", reasons=True)
    for warning in answer.warnings:
        print(f"warning: {warning}", file=sys.stderr)


def _print_some(
    console: Console, configurations: tuple[Configuration, ...], title: str, *, reasons: bool = False
) -> None:
    if not configurations:
        return
    console.print(f"\n{title}", style="italic")
    console.print(_table(configurations[:_SHOWN], reasons=reasons))
    more = len(configurations) - _SHOWN
    if more > 0:
        console.print(f"and {more} more; --json lists all")


def _table(configurations: tuple[Configuration, ...], *, reasons: bool) -> Table:
    from rich.table import Table

    from tonnage.units import format_bytes, format_energy, format_seconds, format_usd

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("configuration", no_wrap=True)
    for heading in ("memory", "step", "run", "at most", "energy", "cost"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("why not" if reasons else "basis")
    for c in configurations:
        time = c.estimate.time
        table.add_row(
            c.name,
            format_bytes(c.estimate.device_bytes.value),
            format_seconds(time.step_seconds.value) if time else "",
            format_seconds(c.seconds.value),
            format_seconds(c.seconds.high),
            format_energy(c.joules.value),
            format_usd(c.usd.value) if c.usd else "",
            "; ".join(c.reasons) if reasons else (time.basis if time else ""),
        )
    return table

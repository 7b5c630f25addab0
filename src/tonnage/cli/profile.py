"""`tonnage profile`: run a program, or read a trace, and say where the time of a step goes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tonnage.profile.report import ProfileReport


def profile_command(
    program: Annotated[str, typer.Argument(help="A script, module:function, or a trace (.json, .json.gz).")],
    arguments: Annotated[list[str] | None, typer.Argument(help="The script's own arguments, after --.")] = None,
    warmup: Annotated[int, typer.Option(help="Steps to let pass first.", min=0)] = 3,
    steps: Annotated[int, typer.Option(help="Steps to look at: by the clock, then under the profiler.", min=1)] = 5,
    keep_running: Annotated[
        bool, typer.Option("--keep-running/--stop-after", help="Let the program finish; else stop it after the window.")
    ] = False,
    flamegraph: Annotated[Path | None, typer.Option(help="Write a flame graph (SVG).")] = None,
    folded: Annotated[Path | None, typer.Option(help="Write folded stacks.")] = None,
    speedscope: Annotated[Path | None, typer.Option(help="Write stacks for speedscope (JSON).")] = None,
    trace: Annotated[Path | None, typer.Option(help="Keep the trace, for Perfetto (.json or .json.gz).")] = None,
    stacks: Annotated[str, typer.Option(help="modules, or python (needs py-spy).")] = "modules",
    listen: Annotated[str, typer.Option(help="HOST:PORT: profile on demand over HTTP while the program runs.")] = "",
    predict: Annotated[
        bool, typer.Option("--predict", help="Run nothing: indicators of an estimate on --gpu.")
    ] = False,
    gpu: Annotated[str, typer.Option("--gpu", "-g", help="The GPU for --predict.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    timeout: Annotated[
        float, typer.Option(help="Give up if the window is not seen after so many seconds.", min=1)
    ] = 900.0,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,  # noqa: ARG001  (see main.py)
) -> int:
    """Run PROGRAM, unmodified, and tell where the time of its steps goes; then stop it.

    Forward, backward, optimizer, copies, waits: tonnage profile train.py -- --batch-size 64
    """
    from tonnage.api import profile
    from tonnage.cli.estimate import check_folder
    from tonnage.cli.output import progress
    from tonnage.errors import UsageError

    for file in (flamegraph, folded, speedscope, trace):
        check_folder(file)
    if stacks not in ("modules", "python"):
        raise UsageError(f"there are no {stacks} stacks", "choose modules or python")
    if predict != bool(gpu):
        raise UsageError("--predict and --gpu belong together", "for example: --predict --gpu H100")
    if listen:
        return _listen(program, tuple(arguments or ()), listen)
    with progress() as say:
        report = profile(
            program, arguments=arguments or (), warmup=warmup, steps=steps, keep_running=keep_running,
            python_stacks=stacks == "python", trace=trace, predict_on=gpu, timeout_seconds=timeout, progress=say,
        )  # fmt: skip
    if as_json:
        import json

        print(json.dumps(report.as_dict()))
    else:
        from tonnage.cli.profile_table import print_profile

        print_profile(report)
    _write(report, flamegraph, folded, speedscope)  # last: what was seen is not lost because a disk is full
    if trace is not None and not predict:
        if not trace.is_file():
            raise UsageError(f"{trace} could not be written")
        print(f"written: {trace}", file=sys.stderr)
    return report.exit_code or 0


def _write(report: ProfileReport, flamegraph: Path | None, folded: Path | None, speedscope_file: Path | None) -> None:
    from tonnage.errors import UsageError
    from tonnage.profile.outputs import draw_report, write_text
    from tonnage.profile.stacks import fold, speedscope

    wanted = [file for file in (flamegraph, folded, speedscope_file) if file is not None]
    if wanted and not report.stacks:
        raise UsageError(f"{wanted[0]} cannot be made: there are no stacks", "predicted indicators have none")
    if flamegraph is not None:
        write_text(flamegraph, draw_report(report))
    if folded is not None:
        write_text(folded, fold(report.stacks))
    if speedscope_file is not None:
        write_text(speedscope_file, speedscope(report.stacks, report.indicators.program))
    for file in wanted:
        print(f"written: {file}", file=sys.stderr)


def _listen(program: str, arguments: tuple[str, ...], address: str) -> int:
    from tonnage.profile.job import Job, WindowOptions
    from tonnage.profile.listen import parse_address, serve
    from tonnage.program.program import parse_program

    parsed, place = parse_program(program, arguments), parse_address(address)
    if place[0] not in ("127.0.0.1", "::1", "localhost"):
        print(f"warning: whoever reaches {address} can read profiles and start them", file=sys.stderr)
    return serve(
        lambda: Job(parsed, WindowOptions(), listens=True), place,
        lambda url: print(f"listening: {url}/profile", file=sys.stderr, flush=True),
    )  # fmt: skip

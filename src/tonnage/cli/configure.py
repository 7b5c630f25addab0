"""`tonnage configure`: ask a configuration server what a program shall run on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def configure_command(
    program: Annotated[str, typer.Argument(help="A script, module:function, an ONNX file or a saved trace.")],
    server: Annotated[str, typer.Option(help="Address of the configuration server.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="The script's own arguments, after --.")] = None,
    indicators: Annotated[Path | None, typer.Option(help="Take indicators from this file; nothing is run.")] = None,
    predict: Annotated[bool, typer.Option("--predict", help="Take indicators from an estimate; needs no GPU.")] = False,
    gpu: Annotated[str, typer.Option(help="With --predict: the GPU that the indicators are for.")] = "H200",
    warmup: Annotated[int, typer.Option(help="Steps that pass before the profiler looks.", min=0)] = 3,
    window: Annotated[int, typer.Option(help="Steps that the profiler looks at.", min=1)] = 5,
    estimates: Annotated[
        bool, typer.Option("--estimates/--no-estimates", help="Send along what it would take on the server's GPUs.")
    ] = True,
    steps: Annotated[int, typer.Option(help="Steps of the run, as one GPU would take them.", min=1)] = 1000,
    max_gpus: Annotated[int, typer.Option(help="At most so many GPUs, if the program can use several.", min=1)] = 1,
    framework_version: Annotated[str, typer.Option(help="Of PyTorch in the image; else that of this machine.")] = "",
    label: Annotated[Path, typer.Option(help="Where the label is written.")] = Path("label.json"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the server's whole answer.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,  # noqa: ARG001  (see main.py)
) -> int:
    """Profile PROGRAM, send its indicators to a server and write the signed label that comes back.

    The server gets indicators and a digest, never the program: tonnage configure train.py --server http://127.0.0.1:8642
    """
    from tonnage.cli.output import progress
    from tonnage.errors import UsageError
    from tonnage.service.client import printable
    from tonnage.service.configuring import configure

    if indicators is not None and predict:
        raise UsageError("--indicators and --predict exclude each other")
    with progress() as say:
        found = configure(
            program, server=server, arguments=arguments or (), indicators=indicators,
            predict_on=gpu if predict else "", warmup=warmup, window_steps=window, estimates=estimates,
            run_steps=steps, most_gpus=max_gpus,
            framework_version=framework_version, label=label, progress=say,
        )  # fmt: skip
    if as_json:
        print(found.answer.model_dump_json())
    else:
        from tonnage.cli.configure_table import print_answer

        print_answer(found.label, found.answer)
    for warning in found.warnings:
        print(f"warning: {printable(warning)}", file=sys.stderr)
    print(f"label: {found.path}", file=sys.stderr)
    return 0

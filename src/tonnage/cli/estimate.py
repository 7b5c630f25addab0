"""`tonnage estimate`: what a program needs on each GPU."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tonnage.estimate.estimate import Report


def estimate_command(
    program: Annotated[
        str, typer.Argument(help="A script, module:function, an ONNX file, a prototxt or a saved trace.")
    ],
    arguments: Annotated[list[str] | None, typer.Argument(help="The script's own arguments, after --.")] = None,
    gpu: Annotated[list[str] | None, typer.Option("--gpu", "-g", help="Only this GPU; may be repeated.")] = None,
    gpus: Annotated[str, typer.Option(help="Numbers of GPUs of each kind, separated by commas.")] = "1",
    shard: Annotated[str, typer.Option(help="How several GPUs share the work: ddp, zero1, zero2 or zero3.")] = "ddp",
    samples: Annotated[
        int, typer.Option(help="Samples in an epoch; else as the program's data loader says.", min=0)
    ] = 0,
    steps: Annotated[int, typer.Option(help="Steps to follow after the first.", min=1)] = 3,
    batch: Annotated[str, typer.Option(help="Other batch sizes to try, separated by commas.")] = "",
    find_max_batch: Annotated[bool, typer.Option("--find-max-batch", help="The largest batch on each GPU.")] = False,
    batch_arg: Annotated[str, typer.Option(help="The option or constant that holds the batch size.")] = "",
    size: Annotated[
        list[str] | None, typer.Option(help="NAME=N: a dimension that an ONNX file or a prototxt leaves open.")
    ] = None,
    save_trace: Annotated[Path | None, typer.Option(help="Save what the program did, for later.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a report that any browser can show.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    timeout: Annotated[float, typer.Option(help="Give up after so many seconds.", min=1)] = 900.0,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,  # noqa: ARG001  (see main.py)
) -> int:
    """Tell, without a GPU, what PROGRAM needs on each GPU.

    The program is yours, unmodified, written for cuda: tonnage estimate train.py -- --batch-size 64
    """
    from tonnage.api import estimate
    from tonnage.cli.output import progress

    for file in (save_trace, html):
        check_folder(file)
    with progress() as say:
        report = estimate(
            program, arguments=arguments or (), gpus=gpu or (), steps=steps, batches=numbers(batch, "--batch"),
            counts=numbers(gpus, "--gpus") or [1], shard=shard, samples=samples,
            find_max_batch=find_max_batch, batch_option=batch_arg, sizes=_sizes(size or []), save_trace=save_trace,
            timeout_seconds=timeout, progress=say,
        )  # fmt: skip
    if html is not None:
        _write_page(report, html)
    if as_json:
        import json

        print(json.dumps(report.as_dict()))
    else:
        from tonnage.cli.estimate_table import print_report

        print_report(report)
    return 0 if report.fits_somewhere else 3


def numbers(text: str, option: str) -> list[int]:
    """A list of whole numbers that the user has given for an option."""
    from tonnage.errors import UsageError

    try:
        return [int(part) for part in text.split(",")] if text else []
    except ValueError:
        raise UsageError(f"{option} {text} is not a list of whole numbers", f"for example: {option} 1,2,4") from None


def _sizes(pairs: list[str]) -> dict[str, int]:
    from tonnage.errors import UsageError

    sizes: dict[str, int] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        if not name or not value.isdigit():
            raise UsageError(f"--size {pair} is not NAME=N", "for example: --size sequence=128")
        sizes[name] = int(value)
    return sizes


def check_folder(file: Path | None) -> None:
    """Better now than after the program was followed for minutes."""
    from tonnage.errors import UsageError

    if file is not None and not file.parent.is_dir():
        raise UsageError(f"{file} cannot be written: there is no folder {file.parent}")


def _write_page(report: Report, path: Path) -> None:
    from tonnage.errors import UsageError
    from tonnage.estimate.page import render_page

    try:
        path.write_text(render_page(report), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"the report cannot be written to {path}: {error.strerror}") from None
    print(f"report: {path}", file=sys.stderr)

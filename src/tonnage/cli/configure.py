"""`tonnage configure`: ask a configuration server what a program shall run on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tonnage.cli.indicators_of import Found
    from tonnage.configure.label import SignedLabel
    from tonnage.program.program import Program
    from tonnage.service.client import Client


def configure_command(
    program: Annotated[str, typer.Argument(help="A script, module:function, an ONNX file or a saved trace.")],
    server: Annotated[str, typer.Option(help="Address of the configuration server.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="The script's own arguments, after --.")] = None,
    indicators: Annotated[Path | None, typer.Option(help="Take indicators from this file; nothing is run.")] = None,
    predict: Annotated[bool, typer.Option("--predict", help="Take indicators from an estimate; needs no GPU.")] = False,
    gpu: Annotated[str, typer.Option(help="With --predict: the GPU that the indicators are for.")] = "H200",
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
    from tonnage.configure.work import Work
    from tonnage.program.program import parse_program
    from tonnage.service.client import Client

    _check(indicators, predict, label)
    client, parsed = Client(server), parse_program(program, tuple(arguments or ()))
    with progress() as say:
        offered = client.gpus()  # before a minute of profiling: is anybody there?
        found = _found(parsed, indicators, gpu if predict else "", offered, say)
        work = Work(
            indicators=found.indicators, run_steps=steps, most_gpus=max_gpus, known=found.known,
            gradient_bytes=found.gradient_bytes, framework_version=framework_version or _installed_torch(),
        )  # fmt: skip
        say("asking the server")
        signed, answer = client.configure(work)
    _check_answer(signed, client, found.indicators.program_digest)
    _write(label, signed, parsed)
    if as_json:
        print(answer.model_dump_json())
    else:
        from tonnage.cli.configure_table import print_answer

        print_answer(signed.label, answer)
    return 0


def _check(indicators: Path | None, predict: bool, label: Path) -> None:
    """Better now than after a minute of profiling."""
    from tonnage.errors import UsageError

    if indicators is not None and predict:
        raise UsageError("--indicators and --predict exclude each other")
    if not label.parent.is_dir():
        raise UsageError(f"{label} cannot be written: there is no folder {label.parent}")


def _found(
    program: Program, indicators: Path | None, gpu: str, offered: list[str], say: Callable[[str], None]
) -> Found:
    from tonnage.cli import indicators_of as sources

    if indicators is not None:
        return sources.indicators_from_file(indicators, program)
    if gpu:
        return sources.predicted(program, gpu, offered, say)
    return sources.indicators_of(program, say)


def _installed_torch() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("torch")
    except PackageNotFoundError:
        return ""


def _check_answer(signed: SignedLabel, client: Client, program_digest: str) -> None:
    """A known server has to have signed; an unknown one is named, since its labels will not be deployed."""
    from tonnage.configure.refusals import OtherProgram
    from tonnage.configure.signing import verify_signature
    from tonnage.service.known_servers import known_servers

    if signed.label.program_digest != program_digest:
        raise OtherProgram(f"the server {client.url} has answered with a label for another program")
    servers = known_servers()
    if signed.label.server in servers:
        verify_signature(signed, servers)
    else:
        text = f"the server {signed.label.server} is not known here, so its label will not be deployed"
        print(f"warning: {text}; to trust it: tonnage servers add {client.url}", file=sys.stderr)


def _write(path: Path, signed: SignedLabel, program: Program) -> None:
    from tonnage.configure import label_json
    from tonnage.errors import UsageError
    from tonnage.service.label_program import write_program

    write_program(path, program)
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_bytes(label_json.dump(signed))
        partial.replace(path)
    except OSError as error:
        raise UsageError(f"the label cannot be written to {path}: {error.strerror}") from None
    print(f"label: {path}", file=sys.stderr)

"""`tonnage.configure`: a program's indicators to a server, and its signed label to a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tonnage.configure import label_json
from tonnage.configure.label import Label, SignedLabel
from tonnage.configure.refusals import OtherProgram
from tonnage.configure.signing import verify_signature
from tonnage.configure.work import Work
from tonnage.errors import UsageError
from tonnage.profile.job import WindowOptions
from tonnage.program.program import Program, parse_program
from tonnage.service import indicators_of as sources
from tonnage.service.bodies import ConfigurationAnswer
from tonnage.service.client import Client
from tonnage.service.known_servers import known_servers
from tonnage.service.label_program import write_program

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured:
    """A label in a file, and the whole answer that it came with."""

    path: Path
    label: Label
    answer: ConfigurationAnswer
    warnings: tuple[str, ...]


def configure(
    program: str | Path,
    *,
    server: str,
    arguments: Sequence[str] = (),
    indicators: str | Path | None = None,
    predict_on: str = "",
    warmup: int = 3,
    window_steps: int = 5,
    estimates: bool = True,
    run_steps: int = 1000,
    most_gpus: int = 1,
    framework_version: str = "",
    label: str | Path = "label.json",
    progress: Say = lambda text: None,
) -> Configured:
    """Profile a program, send its indicators to a configuration server and write the signed label that comes back.

    Nothing but numbers and a digest is sent. With `indicators`, a file of `tonnage profile --json`, or with `predict_on`,
    the name of a GPU that an estimate is made for, nothing is run; else `window_steps` are looked at, after `warmup`
    others, and with `estimates` the program is followed once more for what it would take on the server's GPUs. The run
    has `run_steps` steps, as one GPU would take them, on at most `most_gpus`.
    """
    path = Path(label)
    if indicators is not None and predict_on:
        raise UsageError("indicators are either from a file or predicted, not both")
    if not path.parent.is_dir():  # better now than after a minute of profiling
        raise UsageError(f"{path} cannot be written: there is no folder {path.parent}")
    client, parsed = Client(server), parse_program(str(program), tuple(arguments))
    offered = client.gpus()  # is anybody there?
    note = ""
    if indicators is not None:
        found = sources.indicators_from_file(Path(indicators), parsed)
    elif predict_on:
        found = sources.predicted(parsed, predict_on, offered, progress)
    else:
        found = sources.indicators_of(parsed, WindowOptions(warmup=warmup, steps=window_steps), progress)
        if estimates:
            found, note = sources.with_estimates(found, parsed, offered, progress)
    work = Work(
        indicators=found.indicators, run_steps=run_steps, most_gpus=most_gpus, known=found.known,
        gradient_bytes=found.gradient_bytes, framework_version=framework_version or _installed_torch(),
    )  # fmt: skip
    progress("asking the server")
    signed, answer = client.configure(work)
    warning = _check(signed, client, found.indicators.program_digest)
    _write(path, signed, parsed)
    warnings = (*answer.warnings, *(text for text in (note, warning) if text))
    return Configured(path=path, label=signed.label, answer=answer, warnings=warnings)


def _installed_torch() -> str:
    try:
        return version("torch")
    except PackageNotFoundError:
        return ""


def _check(signed: SignedLabel, client: Client, program_digest: str) -> str:
    """A known server has to have signed; an unknown one is named, since its labels will not be deployed."""
    if signed.label.program_digest != program_digest:
        raise OtherProgram(f"the server {client.url} has answered with a label for another program")
    servers = known_servers()
    if signed.label.server in servers:
        verify_signature(signed, servers)
        return ""
    text = f"the server {signed.label.server} is not known here, so its label will not be deployed"
    return f"{text}; to trust it: tonnage servers add {client.url}"


def _write(path: Path, signed: SignedLabel, program: Program) -> None:
    write_program(path, program)
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_bytes(label_json.dump(signed))
        partial.replace(path)
    except OSError as error:
        raise UsageError(f"the label cannot be written to {path}: {error.strerror}") from None

"""`tonnage serve`: models of a folder behind the Open Inference Protocol."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    import asyncio

    from tonnage.serve.server import Addresses, ServeOptions


SERVE_HELP = """Serve models to clients of Triton and KServe: an inference server.

`tonnage serve DIR` is short for `tonnage serve run DIR`."""


class ServeGroup(TyperGroup):
    """`tonnage serve models/` is short for `tonnage serve run models/`."""

    default_command = "run"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or args[0] not in self.commands:
            args = [self.default_command, *args]
        return super().parse_args(ctx, args)


def run_command(
    models: Annotated[Path, typer.Argument(help="The folder: MODEL/VERSION/model.onnx and so on.")],
    host: Annotated[str, typer.Option(help="The address to listen at; 0.0.0.0 for all of this machine.")] = "127.0.0.1",
    http_port: Annotated[int, typer.Option(help="For REST and the web page; 0 takes any.", min=0, max=65535)] = 8000,
    grpc_port: Annotated[int, typer.Option(help="For gRPC; 0 takes any.", min=0, max=65535)] = 8001,
    metrics_port: Annotated[int, typer.Option(help="For Prometheus; 0 takes any.", min=0, max=65535)] = 8002,
    device: Annotated[str, typer.Option(help="cpu, cuda for all GPUs, or cuda:0,2 for some.")] = "cpu",
    control: Annotated[
        str,
        typer.Option(help="Who loads and unloads models: explicit (clients), poll (the folder) or none."),
    ] = "explicit",
    load_model: Annotated[
        list[str] | None,
        typer.Option(help="Load only this at the beginning; may be repeated. With --control explicit."),
    ] = None,
    poll_seconds: Annotated[
        float, typer.Option(help="With --control poll: how often the folder is looked at.", min=0.1)
    ] = 5.0,
    access: Annotated[Path | None, typer.Option(help="Who may do what: bearer tokens, in a YAML file.")] = None,
    rate_limit: Annotated[float, typer.Option(help="Requests a second for each client; 0 for no limit.", min=0)] = 0.0,
    tls_certificate: Annotated[Path | None, typer.Option(help="For https; needs --tls-key.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The certificate's private key.")] = None,
    body_limit: Annotated[str, typer.Option(help="The largest request, such as 64MiB.")] = "1GiB",
    drain_seconds: Annotated[float, typer.Option(help="How long SIGTERM waits for answers.", min=0)] = 60.0,
    log_format: Annotated[str, typer.Option(help="text or json.")] = "text",
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,  # noqa: ARG001  (see main.py)
) -> None:
    """Serve models to clients of Triton and KServe, over REST and gRPC.

    ONNX, PyTorch and Caffe models are found by their files; config.pbtxt or config.yaml beside the versions says how
    they are served. SIGTERM answers what has come in and ends. `tonnage serve tune` finds a good configuration.
    """
    with needed_packages():
        from tonnage.serve.access import read_access
        from tonnage.serve.http_connection import HttpLimits
        from tonnage.serve.logs import start_logging
        from tonnage.serve.server import ServeOptions

    start_logging(log_format)
    check_folder(models)
    if not any(each.is_dir() for each in models.iterdir()):
        print(f"note: there are no models in {models} yet", file=sys.stderr)
    options = ServeOptions(
        repository=models,
        host=host,
        http_port=http_port,
        grpc_port=grpc_port,
        metrics_port=metrics_port,
        gpus=gpus_of(device),
        control=_control(control),
        load_models=tuple(load_model or ("*",)),
        poll_seconds=poll_seconds,
        drain_seconds=drain_seconds,
        limits=HttpLimits(most_body_bytes=_bytes(body_limit)),
        access=read_access(access, rate_limit),
        tls=_tls(tls_certificate, tls_key),
    )
    _run(options)


@contextmanager
def needed_packages() -> Iterator[None]:
    """Imports within raise `MissingDependency` for what is not installed."""
    from tonnage.errors import MissingDependency

    try:
        yield
    except ModuleNotFoundError as error:
        message = f"the inference server needs the package {error.name}"
        raise MissingDependency(message, "pip install 'tonnage[serve]'") from None


@contextmanager
def event_loop() -> Iterator[asyncio.Runner]:
    import asyncio

    with needed_packages():
        import uvloop
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        yield runner


def _run(options: ServeOptions) -> None:
    from tonnage.serve.server import serve

    with event_loop() as runner:
        runner.run(serve(options, _say))


def check_folder(path: Path) -> None:
    """Is it a folder of models? Raises `NotFound` or `UsageError` for what is certainly none."""
    from tonnage.errors import NotFound, UsageError
    from tonnage.serve.repository import CONFIGURATIONS
    from tonnage.serve.runtimes import FILES

    expected = "expected a folder with MODEL/1/model.onnx in it, or model.pt2, model.pt, model.prototxt"
    if not path.exists():
        raise NotFound(f"there is no folder {path}", expected)
    if not path.is_dir():
        raise UsageError(f"{path} is a file, not a folder of models", expected)
    own = [*CONFIGURATIONS, *FILES, *(f"1/{name}" for name in FILES)]
    found = next((name for name in own if (path / name).is_file()), None)
    if found is not None:
        raise UsageError(f"{path} has {found} in it, so it is the folder of one model", "name the folder around it")


def _say(addresses: Addresses) -> None:
    print(f"REST at {addresses.http}", file=sys.stderr)
    print(f"gRPC at {addresses.grpc}", file=sys.stderr)
    print(f"metrics at {addresses.metrics}", file=sys.stderr, flush=True)


def gpus_of(device: str) -> tuple[int, ...]:
    """None for the processor; raises `UsageError`, or `Unreachable` where there is no driver."""
    from tonnage.errors import Unreachable, UsageError
    from tonnage.hardware.probe import probe

    kind, _, numbers = device.partition(":")
    if device == "cpu":
        return ()
    if kind != "cuda" or not all(number.isdigit() for number in numbers.split(",") if numbers):
        raise UsageError(f"--device {device} is no device", "for example: --device cuda, or --device cuda:0,2")
    try:
        here = len(probe().gpus)
    except Unreachable as error:
        raise Unreachable(f"--device {device}: {error.message}", "--device cpu needs none") from None
    chosen = tuple(int(number) for number in numbers.split(",")) if numbers else tuple(range(here))
    if not chosen or max(chosen) >= here:
        raise UsageError(f"--device {device}: this machine has {here} GPUs", "--device cpu needs none")
    return chosen


def _control(text: str) -> Any:
    from tonnage.errors import UsageError
    from tonnage.serve.server import Control

    try:
        return Control(text)
    except ValueError:
        raise UsageError(f"--control {text} is not known", f"one of {', '.join(Control)}") from None


def _bytes(text: str) -> int:
    from tonnage.errors import UsageError
    from tonnage.hardware.quantities import parse_bytes

    try:
        return parse_bytes(text)
    except ValueError as error:
        raise UsageError(f"--body-limit {text}: {error}", "for example: --body-limit 64MiB") from None


def _tls(certificate: Path | None, key: Path | None) -> tuple[Path, Path] | None:
    from tonnage.errors import UsageError

    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise UsageError("TLS needs both --tls-certificate and --tls-key")
    return certificate, key

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

    from tonnage.serve.server import Addresses
    from tonnage.serve.settings import SettingsSource


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
    context: typer.Context,
    models: Annotated[Path | None, typer.Argument(help="The folder: MODEL/VERSION/model.onnx and so on.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="A service.yaml for what is not said here; it is read again when it changes.")
    ] = None,
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
    memory_limit: Annotated[
        str, typer.Option(help="Main memory for all models, such as 16GiB; else as much as the machine has free.")
    ] = "",
    drain_seconds: Annotated[float, typer.Option(help="How long SIGTERM waits for answers.", min=0)] = 60.0,
    in_flight_limit: Annotated[str, typer.Option(help="Bytes of all requests that are not answered yet.")] = "4GiB",
    connection_limit: Annotated[int, typer.Option(help="HTTP connections at once.", min=1)] = 10_000,
    log_format: Annotated[str, typer.Option(help="text or json.")] = "text",
    log_requests: Annotated[
        bool, typer.Option("--log-requests", help="Log each request, not only those that fail.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,  # noqa: ARG001  (see main.py)
) -> None:
    """Serve models to clients of Triton and KServe, over REST and gRPC.

    ONNX, PyTorch and Caffe models are found by their files; config.pbtxt or config.yaml beside the versions says how
    they are served. SIGTERM answers what has come in and ends. `tonnage serve tune` finds a good configuration.
    """
    with needed_packages():
        from tonnage.cli.typed import typed_options
        from tonnage.serve.settings import ServeSettings, SettingsSource

    typed = ServeSettings(
        models=models,
        host=host,
        http_port=http_port,
        grpc_port=grpc_port,
        metrics_port=metrics_port,
        device=device,
        control=control,
        load_model=tuple(load_model or ("*",)),
        poll_seconds=poll_seconds,
        access=access,
        rate_limit=rate_limit,
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        body_limit=_bytes("--body-limit", body_limit),
        drain_seconds=drain_seconds,
        in_flight_limit=_bytes("--in-flight-limit", in_flight_limit),
        connection_limit=connection_limit,
        memory_limit=_bytes("--memory-limit", memory_limit) if memory_limit else None,
        log_format=log_format,
        log_requests=log_requests,
    )
    _run(SettingsSource(typed, typed_options(context), config))


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


def _run(source: SettingsSource) -> None:
    from tonnage.serve.logs import start_logging

    start_logging(source.read().log_format)
    with needed_packages():
        from tonnage.serve.following import following
        from tonnage.serve.server import serve

        follow = following(source) if source.file else None  # from here on no change is missed
        options = source.read().options()
    check_folder(options.repository)
    if not any(each.is_dir() for each in options.repository.iterdir()):
        print(f"note: there are no models in {options.repository} yet", file=sys.stderr)
    with event_loop() as runner:
        code = runner.run(serve(options, _say, follow))
    if code:
        raise typer.Exit(code)


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


def _bytes(option: str, text: str) -> int:
    from tonnage.errors import UsageError
    from tonnage.hardware.quantities import parse_bytes

    try:
        return parse_bytes(text)
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}", f"for example: {option} 64MiB") from None

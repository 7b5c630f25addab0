"""`tonnage configure-server`: answers indicators with signed labels."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tonnage.service.configurator import Configurator
    from tonnage.store.database import Database


def configure_server_command(
    cluster: Annotated[str, typer.Option(help="The inventory: nodes, GPUs and links, as in cluster.yaml.")],
    key: Annotated[Path, typer.Option(help="The server's private key; made on the first start.")],
    listen: Annotated[str, typer.Option(help="Address and port.")] = "127.0.0.1:8642",
    name: Annotated[str, typer.Option(help="The server's name on labels; the cluster's by default.")] = "",
    rules: Annotated[Path | None, typer.Option(help="Your own rules instead of the preset ones.")] = None,
    images: Annotated[Path | None, typer.Option(help="Your own image catalogue.")] = None,
    database: Annotated[
        str, typer.Option(help="Where labels and measurements are kept; else as of the benchmark.")
    ] = "",
    valid: Annotated[str, typer.Option(help="How long a label may be deployed, such as 90min or 2d.")] = "1d",
) -> None:
    """Serve hardware configurations: receives indicators of programs, answers with signed labels.

    Clients never send programs, and the server never runs any.
    """
    uvicorn = _uvicorn()
    from tonnage.service.app import create_app
    from tonnage.service.files import rules_text
    from tonnage.store.database import open_database

    host, port = address(listen)
    with open_database(database or None) as opened:
        configurator = _configurator(opened, cluster, key, name, rules, images, _seconds(valid))
        app = create_app(configurator, rules_text(rules))
        _check_free(host, port)
        _say(configurator, host, port)
        uvicorn.run(app, host=host, port=port, log_level="warning", limit_concurrency=64, timeout_keep_alive=5)


def _uvicorn() -> Any:
    from tonnage.errors import MissingDependency

    try:
        import fastapi  # noqa: F401 - the application needs it
        import uvicorn
    except ModuleNotFoundError as error:
        message = f"the configuration server needs the package {error.name}"
        raise MissingDependency(message, "pip install 'tonnage[service]'") from None
    return uvicorn


def _configurator(
    opened: Database, cluster: str, key: Path, name: str, rules: Path | None, images: Path | None, valid: int
) -> Configurator:
    from tonnage.hardware import read_cluster
    from tonnage.service.configurator import Configurator
    from tonnage.service.files import read_images, read_rules
    from tonnage.service.keys import load_or_make_key
    from tonnage.service.known_servers import checked_name

    inventory = read_cluster(cluster)
    known_rules, known_images = read_rules(rules), read_images(images)
    private_key, made = load_or_make_key(key)
    if made:
        print(f"made a new key: {key}", file=sys.stderr)
    return Configurator(
        name=checked_name(name or inventory.name),
        private_key=private_key,
        cluster=inventory,
        rules=known_rules,
        images=known_images,
        database=opened,
        validity_seconds=valid,
    )


def address(listen: str) -> tuple[str, int]:
    """Host and port; raises `UsageError`."""
    from tonnage.errors import UsageError

    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise UsageError(f"--listen {listen} is no address and port", "for example: --listen 127.0.0.1:8642")
    return host.strip("[]"), int(port)


def _seconds(text: str) -> int:
    from tonnage.cli.durations import read_duration
    from tonnage.errors import UsageError

    seconds = read_duration("--valid", text) or 0.0
    if not 1 <= seconds <= 366 * 86400:
        raise UsageError(f"labels cannot be valid for {text}", "choose from 1s to 366d")
    return int(seconds)


def _say(configurator: Configurator, host: str, port: int) -> None:
    from tonnage.configure.signing import fingerprint

    print(f"configuration server {configurator.name} at http://{host}:{port}", file=sys.stderr)
    print(f"fingerprint of its key: {fingerprint(configurator.public_key)}", file=sys.stderr)


def _check_free(host: str, port: int) -> None:
    """A sentence instead of uvicorn's log line."""
    import socket

    from tonnage.errors import UsageError

    try:
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            pass
    except OSError as error:
        raise UsageError(
            f"cannot listen at {host}:{port}: {error.strerror or error}", "choose another --listen"
        ) from None

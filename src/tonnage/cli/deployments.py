"""`tonnage status`, `tonnage logs` and `tonnage stop`: what was deployed from here."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tonnage.engines.base import JobStatus
    from tonnage.engines.deploying import Deployment

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Identity = Annotated[str, typer.Argument(metavar="ID", help="As `tonnage deploy` printed it, or its beginning.")]


def status_command(
    identity: Annotated[str, typer.Argument(metavar="[ID]", help="One alone, as `tonnage deploy` printed it.")] = "",
    as_json: AsJson = False,
) -> int:
    """Tell how deployments are; the states are the same on every engine."""
    from tonnage.engines.deploying import Deployments, status_of, statuses

    deployments = Deployments()
    if identity:
        found = deployments.find(identity)
        rows = [(found, status_of(found))]
    else:
        rows = list(statuses(deployments))
    if as_json:
        described = [describe(*row) for row in rows]
        print(json.dumps(described[0] if identity else {"deployments": described}))
    elif rows:
        _print_table(rows)
    else:
        print("nothing was deployed yet", file=sys.stderr)
    return 0


def logs_command(
    identity: Identity,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until it is over.")] = False,
) -> int:
    """Print what a deployment printed."""
    from tonnage.engines.base import StreamsLogs
    from tonnage.engines.deploying import Deployments
    from tonnage.engines.registry import find_engine
    from tonnage.errors import UsageError

    found = Deployments().find(identity)
    engine = find_engine(found.engine)
    if not isinstance(engine, StreamsLogs):
        raise UsageError(f"the engine {found.engine} does not show what jobs print")
    for line in engine.logs(found.name_there, follow=follow):
        print(line, flush=follow)
    return 0


def stop_command(
    identity: Identity,
    remove: Annotated[bool, typer.Option("--remove", help="Also forget it, with its log and its container.")] = False,
    as_json: AsJson = False,
) -> int:
    """End a deployment; may be repeated."""
    from tonnage.engines.deploying import Deployments, stop

    deployments = Deployments()
    found = deployments.find(identity)
    status = stop(found, deployments, remove=remove)
    if as_json:
        print(json.dumps(describe(found, status)))
    else:
        print(f"{found.id} {status.state}{' and removed' if remove else ''}")
    return 0


def describe(deployment: Deployment, status: JobStatus) -> dict[str, Any]:
    """As `--json` prints it."""
    return {
        "id": deployment.id,
        "engine": deployment.engine,
        "state": str(status.state),
        "exit_code": status.exit_code,
        "reason": status.reason,
        "image": deployment.image,
        "ports": [list(pair) for pair in deployment.ports],
        "submitted_at": deployment.submitted_at,
        "started_at": status.started_at,
        "ended_at": status.ended_at,
    }


def _print_table(rows: list[tuple[Deployment, JobStatus]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("id", "engine", "state", "exit", "time", "what happened"):
        table.add_column(heading, no_wrap=heading == "id")
    for deployment, status in rows:
        code = "" if status.exit_code is None else str(status.exit_code)
        table.add_row(
            escape(deployment.id), deployment.engine, str(status.state), code, _duration(status), escape(status.reason)
        )
    console.print(table)


def _duration(status: JobStatus) -> str:
    import time

    from tonnage.units import format_seconds

    if status.started_at is None or (status.state.is_over and status.ended_at is None):
        return ""
    return format_seconds(max(0.0, (status.ended_at or time.time()) - status.started_at))

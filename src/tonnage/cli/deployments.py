"""`tonnage status`, `tonnage logs` and `tonnage stop`: what was deployed from here."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tonnage.engines.base import Engine, JobStatus
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
    rows = [(tell_server(deployment, status), status) for deployment, status in rows]
    if as_json:
        described = [describe(*row) for row in rows]
        print(json.dumps(described[0] | _server(*rows[0]) if identity else {"deployments": described}))
    elif rows:
        _print_table(rows)
        if identity:
            _print_server(*rows[0])
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
    from tonnage.profile.recorded import without_records

    found = Deployments().find(identity)
    engine = find_engine(found.engine)
    if not isinstance(engine, StreamsLogs):
        raise UsageError(f"the engine {found.engine} does not show what jobs print")
    for line in without_records(engine.logs(found.name_there, follow=follow)):
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


def tell_server(deployment: Deployment, status: JobStatus, engine: Engine | None = None) -> Deployment:
    """A run that is over is reported to the server that configured it, by whoever looks first; a failure is a warning."""
    from tonnage.configure.label_annotations import PREFIX

    if f"{PREFIX}id" not in deployment.labels or deployment.report or not status.state.is_over:
        return deployment
    from dataclasses import replace

    from tonnage.engines.deploying import Deployments
    from tonnage.engines.registry import find_engine
    from tonnage.errors import TonnageError
    from tonnage.service.reporting import report_run

    try:
        report = report_run(deployment, engine or find_engine(deployment.engine), status, Deployments())
    except TonnageError as error:
        later = "tonnage status tries again"
        print(f"warning: {deployment.id} could not be reported: {error.message}; {later}", file=sys.stderr)
        return deployment
    return replace(deployment, report=report)


def _server(deployment: Deployment, status: JobStatus) -> dict[str, Any]:
    """What an inference server that runs on this machine tells of itself."""
    from tonnage.engines.base import JobState
    from tonnage.engines.service import SERVICE_LABEL

    if SERVICE_LABEL not in deployment.labels or status.state is not JobState.RUNNING:
        return {}
    from dataclasses import asdict

    from tonnage.serve.service_waiting import health_of

    health = health_of(deployment)
    return {} if health is None else {"server": asdict(health)}


def _print_server(deployment: Deployment, status: JobStatus) -> None:
    told = _server(deployment, status).get("server")
    if told is None:
        return
    print("ready" if told["is_ready"] else "live, not ready" if told["is_live"] else "it does not answer yet")
    for model in told["models"]:
        version = f" version {model['version']}" if model["version"] else ""
        why = f": {model['reason']}" if model["reason"] else ""
        print(f"{model['name']}{version} {(model['state'] or 'not loaded').lower()}{why}")


def ending(deployment: Deployment, status: JobStatus) -> str:
    """What is to be said of how it ended; nothing where all went well."""
    if status.state != "failed":
        return status.reason
    said = status.reason or f"it failed with exit code {status.exit_code}"
    return f"{said}; tonnage logs {deployment.id} shows what it printed"


def comparison(deployment: Deployment) -> str:
    """Predicted beside measured, in one sentence; nothing where nothing is known."""
    from tonnage.units import format_seconds

    report = deployment.report
    if "problem" in report:
        return f"nothing was reported: {report['problem']}"
    if not report:
        return ""
    predicted, measured = (format_seconds(report[f"{kind}_step_seconds"]) for kind in ("predicted", "measured"))
    sentence = f"a step took {measured}, predicted were {predicted} ({report['error']:+.0%})"
    if report["run_steps"]:
        mean = format_seconds(report["run_seconds"] / report["run_steps"])
        sentence += f"; over the whole run of {report['run_steps'] + 1:,} steps it was {mean}"
    return f"{sentence}; {report['server']} was told"


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
        "report": dict(deployment.report),
    }


def _print_table(rows: list[tuple[Deployment, JobStatus]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    compared = any(deployment.report for deployment, _ in rows)
    headings = ("id", "engine", "state", "exit", "time", *(("predicted", "measured") if compared else ()))
    for heading in (*headings, "what happened"):
        table.add_column(heading, no_wrap=heading == "id")
    for deployment, status in rows:
        code = "" if status.exit_code is None else str(status.exit_code)
        steps = _steps(deployment) if compared else ()
        table.add_row(
            escape(deployment.id), deployment.engine, str(status.state), code, _duration(status), *steps,
            escape(status.reason),
        )  # fmt: skip
    console.print(table)


def _steps(deployment: Deployment) -> tuple[str, str]:
    from tonnage.units import format_seconds

    names = ("predicted_step_seconds", "measured_step_seconds")
    predicted, measured = (
        format_seconds(deployment.report[name]) if name in deployment.report else "" for name in names
    )
    return predicted, measured


def _duration(status: JobStatus) -> str:
    import time

    from tonnage.units import format_seconds

    if status.started_at is None or (status.state.is_over and status.ended_at is None):
        return ""
    return format_seconds(max(0.0, (status.ended_at or time.time()) - status.started_at))

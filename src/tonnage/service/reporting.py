"""The loop closed: what a program that was deployed with a label did goes back to the server that configured it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tonnage.configure.label_annotations import PREFIX
from tonnage.engines.base import Engine, JobStatus, StreamsLogs
from tonnage.engines.deploying import Deployment, Deployments
from tonnage.engines.jobs import PROGRAM_LABEL
from tonnage.errors import NotFound, TonnageError, Unreachable, UsageError
from tonnage.profile.recorded import find_record
from tonnage.service.bodies import LabelView
from tonnage.service.client import Client
from tonnage.service.known_servers import known_servers
from tonnage.service.request import Run

_LABEL, _SERVER, _DIGEST = (PREFIX + name for name in ("id", "server", "program_digest"))


def report_run(
    deployment: Deployment, engine: Engine, status: JobStatus, deployments: Deployments
) -> Mapping[str, Any]:
    """Tell the server of a run that is over, and keep what was told beside the deployment; once, and returned again.

    Nothing is told of what no server has configured, or is not over. Raises `Unreachable` where the server does not
    answer: then it may be tried again. What cannot become better, such as a server that does not want to know, is kept
    as the report's `problem`.
    """
    if deployment.report or _LABEL not in deployment.labels or not status.state.is_over:
        return deployment.report
    try:
        report = _told(deployment, engine, status)
    except (Unreachable, NotFound):
        raise
    except TonnageError as error:
        report = {"problem": error.message}
    deployments.write(replace(deployment, report=report))
    return report


def _told(deployment: Deployment, engine: Engine, status: JobStatus) -> dict[str, Any]:
    labels = deployment.labels
    if not isinstance(engine, StreamsLogs):
        raise UsageError(f"the engine {deployment.engine} does not show what its jobs print")
    record = find_record(engine.logs(deployment.name_there), labels[PROGRAM_LABEL], labels[_DIGEST])
    if record is None:
        few = "the program made too few steps to be timed"
        raise UsageError(few if status.state == "succeeded" else "the program ended before its steps could be timed")
    run = Run(state=str(status.state), steps=record.run_steps, seconds=record.run_seconds)
    view = Client(_address(labels[_SERVER])).report(labels[_LABEL], record.indicators, record.machine, run)
    return {
        "server": labels[_SERVER],
        "predicted_step_seconds": view.predicted_step_seconds,
        "measured_step_seconds": record.indicators.step_seconds,
        "error": view.predicted_step_seconds / record.indicators.step_seconds - 1,
        "predicted_run_seconds": _predicted_run(view),
        "run_steps": record.run_steps,
        "run_seconds": record.run_seconds,
    }


def _predicted_run(view: LabelView) -> float | None:
    predicted = view.label.get("label", {}).get("predicted", {}).get("seconds")
    return float(predicted) if isinstance(predicted, int | float) else None


def _address(server: str) -> str:
    known = known_servers().get(server)
    if known is None or not known.url:
        raise UsageError(f"the server {server} is no longer known here, so nobody can be told", "tonnage servers add")
    return known.url

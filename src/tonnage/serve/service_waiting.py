"""Waits until the server in a container is ready, and says why where it does not come up."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice

from tonnage.engines.base import Engine, JobState, JobStatus, StreamsLogs
from tonnage.engines.deploying import Deployment
from tonnage.engines.service import SERVICE_LABEL
from tonnage.errors import TonnageError
from tonnage.serve.health import Health, ask_health

_POLL_SECONDS = 0.2
_LAST_LINES = 12
_MANY_LINES = 100_000


class DoesNotComeUp(TonnageError):
    """The service was started, and is not ready; `lines` are the last that it printed."""

    def __init__(self, message: str, hint: str, lines: list[str]) -> None:
        super().__init__(message, hint)
        self.lines = lines


def is_service(deployment: Deployment) -> bool:
    return SERVICE_LABEL in deployment.labels


def health_of(deployment: Deployment) -> Health | None:
    """Of a server whose ports are on this machine; None in a cluster, where the readiness of pods tells."""
    if deployment.engine == "kubernetes":
        return None
    return ask_health(f"{deployment.labels[SERVICE_LABEL]}://127.0.0.1:{deployment.ports[0][0]}")


def wait_until_ready(
    deployment: Deployment, engine: Engine, seconds: float, say: Callable[[str], None] = lambda text: None
) -> JobStatus:
    """The state when it is ready; raises `DoesNotComeUp` as soon as it has failed once."""
    deadline, before = time.monotonic() + seconds, engine.state(deployment.job_id).restarts
    while True:
        status = engine.state(deployment.job_id)
        health = health_of(deployment) if status.state is JobState.RUNNING else Health()
        if health is None or health.is_ready:
            return status
        reason = _failure(status, health, before) or ("" if time.monotonic() < deadline else _too_late(status, seconds))
        if reason:
            raise _gives_up(deployment, engine, reason)
        say(f"{deployment.id} is {status.state} {status.reason}")
        time.sleep(_POLL_SECONDS)


def _gives_up(deployment: Deployment, engine: Engine, reason: str) -> DoesNotComeUp:
    lines = _last_lines(deployment, engine)
    hint = f"`tonnage logs {deployment.id}` shows all; tonnage stop {deployment.id} --remove lets it go"
    if any("No module named tonnage" in line for line in lines):
        reason = f"{deployment.image} has no Tonnage"
        hint = f"install: ['tonnage[serve]'] in the service file; before, tonnage stop {deployment.id} --remove"
    return DoesNotComeUp(f"{deployment.id} does not come up: {reason}", hint, lines)


def _failure(status: JobStatus, health: Health, restarts: int) -> str:
    if status.state.is_over:
        return status.reason or f"it ended with exit code {status.exit_code}"
    if status.restarts > restarts:
        return "it ended and is started again"
    if health.failed:
        model = health.failed[0]
        return f"the model {model.name} cannot be loaded: {model.reason}"
    return ""


def _too_late(status: JobStatus, seconds: float) -> str:
    more = f": {status.reason}" if status.reason else ""
    return f"it is {status.state}, and not ready after {seconds:g} s{more}"


def _last_lines(deployment: Deployment, engine: Engine) -> list[str]:
    if not isinstance(engine, StreamsLogs):
        return []
    try:
        return list(islice(engine.logs(deployment.job_id), _MANY_LINES))[-_LAST_LINES:]
    except TonnageError:
        return []

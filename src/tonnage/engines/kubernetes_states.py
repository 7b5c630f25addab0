"""How a job is, from what the cluster tells of its objects and pods. Pure: plain documents in, a status out."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tonnage.engines.base import JobState, JobStatus

Document = dict[str, Any]

CANCELLED = "tonnage.dev/cancelled"  # an annotation: suspended by us, and not by a queue that will go on with it


def job_status(job: Document, pods: list[Document]) -> JobStatus:
    """Of a Job; the exit code and its reason are told by its pod only."""
    status, conditions = job.get("status") or {}, _conditions(job)
    started, ended = _seconds(status.get("startTime")), _seconds(status.get("completionTime"))
    code, reason, ended_at = _ending(pods)
    if is_cancelled(job):
        return JobStatus(state=JobState.CANCELLED, exit_code=code, started_at=started, ended_at=ended_at)
    if "Complete" in conditions:
        return JobStatus(state=JobState.SUCCEEDED, exit_code=code or 0, started_at=started, ended_at=ended or ended_at)
    if "Failed" in conditions:
        failed = conditions["Failed"]
        why = reason or str(failed.get("message") or failed.get("reason") or "")
        at = ended_at or _seconds(failed.get("lastTransitionTime"))
        return JobStatus(state=JobState.FAILED, exit_code=code, reason=why, started_at=started, ended_at=at)
    state, reason = _going_on(pods)
    return JobStatus(state=state, reason=reason, started_at=started)


def deployment_status(deployment: Document, pods: list[Document]) -> JobStatus:
    """Of a service: running as soon as one instance answers."""
    status = deployment.get("status") or {}
    started = _seconds(deployment["metadata"].get("creationTimestamp"))
    if is_cancelled(deployment):
        return JobStatus(state=JobState.CANCELLED, started_at=started)
    wanted, ready = deployment["spec"].get("replicas", 1), status.get("readyReplicas") or 0
    if ready:
        reason = "" if ready >= wanted else f"{ready} of {wanted} instances are ready"
        return JobStatus(state=JobState.RUNNING, reason=reason, started_at=started)
    _, reason = _going_on(pods)
    restarts = sum(int(container.get("restartCount") or 0) for pod in pods for container in _containers(pod))
    return JobStatus(state=JobState.PENDING, reason=reason or _last_end(pods), started_at=started, restarts=restarts)


def is_cancelled(document: Document) -> bool:
    return CANCELLED in (document["metadata"].get("annotations") or {})


def _conditions(document: Document) -> dict[str, Document]:
    listed = (document.get("status") or {}).get("conditions") or []
    return {condition["type"]: condition for condition in listed if condition.get("status") == "True"}


def _ending(pods: list[Document]) -> tuple[int | None, str, float | None]:
    """Exit code, why, and when, of the container that ended last."""
    ends = [end for pod in pods for container in _containers(pod) if (end := _terminated(container, "state"))]
    if not ends:
        return None, "", None
    last = max(ends, key=lambda end: _seconds(end.get("finishedAt")) or 0.0)
    return last.get("exitCode"), _why(last), _seconds(last.get("finishedAt"))


def _last_end(pods: list[Document]) -> str:
    """Why the instances of a service do not stay up."""
    ends = [end for pod in pods for container in _containers(pod) if (end := _terminated(container, "lastState"))]
    return f"it ended and is started again: {_why(ends[-1])}" if ends else ""


def _why(end: Document) -> str:
    code = end.get("exitCode")
    if end.get("reason") == "OOMKilled":
        return f"killed for memory (exit {code})"
    return f"exit {code}" + (f": {end['message']}" if end.get("message") else "") if code else ""


def _going_on(pods: list[Document]) -> tuple[JobState, str]:
    for pod in pods:
        for container in _containers(pod):
            if (container.get("state") or {}).get("running"):
                return JobState.RUNNING, ""
            waiting = (container.get("state") or {}).get("waiting") or {}
            if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
                return JobState.PENDING, _waiting(waiting)
        unscheduled = [
            c for c in (pod.get("status") or {}).get("conditions") or [] if c.get("reason") == "Unschedulable"
        ]
        if unscheduled:
            return JobState.PENDING, f"no node takes it: {unscheduled[0].get('message', 'no reason was given')}"
    return JobState.PENDING, ""


def _waiting(waiting: Document) -> str:
    reason, message = waiting["reason"], waiting.get("message", "")
    if reason in ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"):
        return f"the image cannot be fetched ({reason}): {message}".removesuffix(": ")
    return f"{reason}: {message}".removesuffix(": ")


def _containers(pod: Document) -> list[Document]:
    return (pod.get("status") or {}).get("containerStatuses") or []


def _terminated(container: Document, which: str) -> Document | None:
    end: Document | None = (container.get(which) or {}).get("terminated")
    return end


def _seconds(moment: str | datetime | None) -> float | None:
    if moment is None:
        return None
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment.replace("Z", "+00:00"))
    return moment.timestamp()

"""How a job is, and what nodes there are, from what Ray and the job's driver tell. Pure: documents in, our words out."""

from __future__ import annotations

from typing import Any

from tonnage.engines.base import JobState, JobStatus, NodeInventory

Document = dict[str, Any]

_STATES = {
    "PENDING": JobState.PENDING,
    "RUNNING": JobState.RUNNING,
    "SUCCEEDED": JobState.SUCCEEDED,
    "FAILED": JobState.FAILED,
    "STOPPED": JobState.CANCELLED,
}
_MODEL = "accelerator_type:"


def job_status(job: Document, report: Document) -> JobStatus:
    """Ray knows its driver, the driver's report the processes: a job whose driver waits for GPUs does not run yet."""
    state = _STATES.get(job["status"], JobState.UNKNOWN)
    if state is JobState.RUNNING and report.get("phase") not in ("running", "over"):
        state = JobState.PENDING
    started, ended = report.get("started_at"), None
    if state.is_over:
        ended = report.get("ended_at") or _seconds(job.get("end_time"))
    return JobStatus(
        state=state,
        exit_code=_exit_code(state, job, report),
        reason=_reason(state, job, report),
        started_at=started,
        ended_at=ended,
        devices=tuple(report.get("devices", ())),
        restarts=report.get("restarts", 0),
    )


def node_inventory(node: Document, node_label: str) -> NodeInventory:
    """Ray gives a node one model at most."""
    resources, labels = node["resources_total"] or {}, node["labels"] or {}
    model = next((key.removeprefix(_MODEL) for key in sorted(resources) if key.startswith(_MODEL)), "")
    count = int(resources.get("GPU", 0))
    return NodeInventory(
        name=labels.get(node_label) or node["node_name"] or node["node_ip"],
        gpus={model: count} if count else {},
        cpu_cores=int(resources.get("CPU", 0)),
        memory_bytes=int(resources.get("memory", 0)),
        features=tuple(f"{key}={value}" for key, value in sorted(labels.items())),
        state=node["state"],
        is_up=node["state"] == "ALIVE",
        is_lost=node["state"] != "ALIVE",
    )


def _exit_code(state: JobState, job: Document, report: Document) -> int | None:
    """The driver's own is that of the job, but for a driver that could not tell how the job ended."""
    if not state.is_over or state is JobState.CANCELLED:
        return None
    return report["exit_code"] if "exit_code" in report else job.get("driver_exit_code")


def _reason(state: JobState, job: Document, report: Document) -> str:
    if state in (JobState.SUCCEEDED, JobState.CANCELLED):
        return ""
    if state is JobState.FAILED and report.get("phase") != "over":
        # The driver never started, or was killed: Ray's own message, which may end with the log.
        return str(job.get("message") or "").partition(", last available logs")[0].strip().partition("\n")[0]
    return str(report.get("reason", ""))


def _seconds(milliseconds: float | None) -> float | None:
    return milliseconds / 1000 if milliseconds else None

"""How a job is, from what Slurm tells of it (squeue, later sacct) and what the job itself wrote down."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, replace

from tonnage.engines.base import JobState, JobStatus

# The fields of `squeue --Format` that a Record is made of, in its order.
SQUEUE_FIELDS = ("jobid", "state", "reason", "exit_code", "restartcnt", "starttime", "endtime", "comment")
SACCT_FIELDS = ("JobIDRaw", "State", "Reason", "ExitCode", "Start", "End")

_STATES = {
    "PENDING": JobState.PENDING,
    "CONFIGURING": JobState.PENDING,
    "POWER_UP_NODE": JobState.PENDING,
    "REQUEUED": JobState.PENDING,
    "REQUEUE_FED": JobState.PENDING,
    "REQUEUE_HOLD": JobState.PENDING,
    "RESV_DEL_HOLD": JobState.PENDING,
    "SPECIAL_EXIT": JobState.PENDING,
    "RUNNING": JobState.RUNNING,
    "COMPLETING": JobState.RUNNING,  # its processes are ending, and its GPUs are not free yet
    "RESIZING": JobState.RUNNING,
    "SIGNALING": JobState.RUNNING,
    "STAGE_OUT": JobState.RUNNING,
    "STOPPED": JobState.RUNNING,
    "SUSPENDED": JobState.RUNNING,
    "COMPLETED": JobState.SUCCEEDED,
    "CANCELLED": JobState.CANCELLED,
    "REVOKED": JobState.CANCELLED,
    "BOOT_FAIL": JobState.FAILED,
    "DEADLINE": JobState.FAILED,
    "FAILED": JobState.FAILED,
    "LAUNCH_FAILED": JobState.FAILED,
    "NODE_FAIL": JobState.FAILED,
    "OUT_OF_MEMORY": JobState.FAILED,
    "PREEMPTED": JobState.FAILED,
    "RECONFIG_FAIL": JobState.FAILED,
    "TIMEOUT": JobState.FAILED,
}
_ENDINGS = {
    "BOOT_FAIL": "its node did not start",
    "DEADLINE": "it could not end before its deadline",
    "NODE_FAIL": "its node was lost",
    "PREEMPTED": "it had to make room for another job",
    "TIMEOUT": "it ran into its time limit",
}
_WAITS = {
    "None": "",
    "Resources": "waits for free nodes or GPUs",
    "Priority": "others come first",
    "Dependency": "waits for other jobs to end",
    "BeginTime": "Slurm waits a little before it starts it again",
    "NodeFail": "its node was lost, and it starts again",
    "JobHeldUser": "it is held: scontrol release lets it go",
    "ReqNodeNotAvail": "a node that it needs is not there",
}
# What slurmstepd writes into the output, with control groups and without.
_MEMORY = re.compile(r"^slurmstepd\S*: error: .*(oom.kill|exceeded .*memory limit)", re.MULTILINE | re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One job as Slurm knows it."""

    slurm_id: str
    state: str
    reason: str = ""
    exit_code: int | None = None
    restarts: int = 0
    started_at: float | None = None
    ended_at: float | None = None
    comment: str = ""

    @property
    def kind(self) -> JobState:
        return _STATES.get(self.state, JobState.UNKNOWN)


def parse_squeue(text: str) -> list[Record]:
    """Lines of the fields with a bar after each."""
    rows = (line.split("|") for line in text.splitlines())
    return [
        _squeue_record(dict(zip(SQUEUE_FIELDS, row, strict=False))) for row in rows if len(row) > len(SQUEUE_FIELDS)
    ]


def _squeue_record(row: dict[str, str]) -> Record:
    state = row["state"]
    return Record(
        slurm_id=row["jobid"],
        state=state,
        reason=row["reason"],
        exit_code=_wait_status(row["exit_code"]),
        restarts=int(row["restartcnt"] or 0),
        started_at=_seconds(row["starttime"]) if state != "PENDING" else None,  # else when it is expected to
        ended_at=_seconds(row["endtime"]) if _is_over(state) else None,  # else by when it must have ended
        comment=row["comment"],
    )


def starts_again(record: Record) -> Record:
    """Of a job that may: between the loss of its node and its return to the queue, Slurm calls it failed for a moment."""
    return (
        replace(record, state="REQUEUED", reason="NodeFail", ended_at=None) if record.state == "NODE_FAIL" else record
    )


def parse_sacct(text: str) -> list[Record]:
    """Of `--parsable2`; "CANCELLED by 1000" is CANCELLED."""
    rows = [dict(zip(SACCT_FIELDS, line.split("|"), strict=False)) for line in text.splitlines()]
    return [
        Record(
            slurm_id=row["JobIDRaw"],
            state=row["State"].split()[0] if row["State"] else "",
            reason=row["Reason"],
            exit_code=_wait_status(row["ExitCode"]),
            started_at=_seconds(row["Start"]),
            ended_at=_seconds(row["End"]),
        )
        for row in rows
        if len(row) == len(SACCT_FIELDS)
    ]


def _is_over(state: str) -> bool:
    return _STATES.get(state, JobState.UNKNOWN).is_over


def _wait_status(text: str) -> int | None:
    """squeue prints what wait() gave (1792 is exit 7, 9 is signal 9), sacct CODE:SIGNAL."""
    code, colon, number = text.partition(":")
    if not code.isdigit():
        return None
    if colon:
        return 128 + int(number) if number.isdigit() and int(number) else int(code)
    status = int(code)
    return 128 + (status & 0x7F) if status & 0x7F else status >> 8


def _seconds(text: str) -> float | None:
    return float(text) if text.isdigit() else None


def status_of(record: Record, *, devices: tuple[str, ...], output: str, memory: str) -> JobStatus:
    """`output` is the end of what it printed, `memory` its limit as people read it."""
    kind = record.kind
    return JobStatus(
        state=kind,
        exit_code=record.exit_code if kind in (JobState.SUCCEEDED, JobState.FAILED) else None,
        reason=_reason(record, output, memory),
        started_at=record.started_at,
        ended_at=record.ended_at,
        devices=() if kind is JobState.PENDING else devices,
        restarts=record.restarts,
    )


def _reason(record: Record, output: str, memory: str) -> str:
    if record.kind is JobState.PENDING:
        return _WAITS.get(record.reason, f"Slurm says: {record.reason}")
    if record.kind is JobState.UNKNOWN:
        return f"Slurm says: {record.state}"
    if record.kind is not JobState.FAILED:
        return ""
    if record.state == "OUT_OF_MEMORY" or _MEMORY.search(output):
        return f"killed for memory: its limit is {memory}"
    if record.state in _ENDINGS:
        return _ENDINGS[record.state]
    if record.exit_code is not None and record.exit_code > 128:
        return _killed(record.exit_code - 128)
    return ""


def _killed(number: int) -> str:
    try:
        return f"killed by {signal.Signals(number).name}"
    except ValueError:
        return f"killed by signal {number}"

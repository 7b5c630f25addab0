"""How a container is, from what its client tells of it, and why it ended."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

from tonnage.engines.base import JobState, JobStatus
from tonnage.engines.cgroups import memory_folder_of, memory_kills
from tonnage.units import format_bytes

KILLED = 137  # 128 and SIGKILL
_KERNEL_LOG = "/dev/kmsg"

# Of podman and docker alike; an ended one is told by its exit code.
_STATES = {
    "configured": JobState.PENDING,
    "created": JobState.PENDING,
    "initialized": JobState.PENDING,
    "restarting": JobState.PENDING,
    "running": JobState.RUNNING,
    "paused": JobState.RUNNING,
    "stopping": JobState.RUNNING,
}
_ENDED = ("exited", "stopped", "dead", "removing")


def container_status(
    document: dict[str, Any], is_cancelled: bool, kernel_log: Callable[[], str] | None = None
) -> JobStatus:
    """From one entry of `inspect`. The kernel's log is read only where it can explain something."""
    state = document["State"]
    if state["Status"] not in _ENDED:
        if is_cancelled and _STATES.get(state["Status"]) is JobState.PENDING:
            return JobStatus(state=JobState.CANCELLED)  # before it was started
        kind = _STATES.get(state["Status"], JobState.UNKNOWN)
        restarts = int(document.get("RestartCount") or 0)
        reason = _so_far(state) or _again(restarts)
        return JobStatus(state=kind, reason=reason, started_at=_seconds(state.get("StartedAt")), restarts=restarts)
    code = int(state["ExitCode"])
    kind = JobState.CANCELLED if is_cancelled else JobState.FAILED if code else JobState.SUCCEEDED
    return JobStatus(
        state=kind,
        exit_code=code,
        reason=_why(document, code, kernel_log or read_kernel_log) if kind is JobState.FAILED else "",
        started_at=_seconds(state.get("StartedAt")),
        ended_at=_seconds(state.get("FinishedAt")),
        restarts=int(document.get("RestartCount") or 0),
    )


def _so_far(state: dict[str, Any]) -> str:
    folder = memory_folder_of(int(state.get("Pid") or 0)) if state.get("Pid") else None
    kills = memory_kills(folder) if folder else 0
    return f"{kills} of its processes were killed for memory" if kills else ""


def _again(restarts: int) -> str:
    times = "once" if restarts == 1 else f"{restarts} times"
    return f"it failed and was started again, {times} so far" if restarts else ""


def _why(document: dict[str, Any], code: int, kernel_log: Callable[[], str]) -> str:
    """Podman 4.3 says `OOMKilled: false` where the group is version 1, and the group is gone with the container."""
    limit_bytes = document.get("HostConfig", {}).get("Memory", 0)
    limit = f": its limit is {format_bytes(limit_bytes)}" if limit_bytes else ""
    named = document["State"].get("OOMKilled") or _was_killed_for_memory(document["Id"], kernel_log())
    if named and code == KILLED:
        return f"killed for memory (exit 137){limit}"
    if named:
        return f"one of its processes was killed for memory (exit {code}){limit}"
    if code == KILLED:
        return f"killed (exit 137), most likely for memory{limit}"
    return str(document["State"].get("Error") or "")


def _was_killed_for_memory(container_id: str, log: str) -> bool:
    return any("oom-kill:" in line and container_id in line for line in log.splitlines())


def read_kernel_log() -> str:
    """Empty where only the administrator may read it."""
    parts = []
    with suppress(OSError):
        descriptor = os.open(_KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK)
        try:
            while True:
                try:
                    parts.append(os.read(descriptor, 8192).decode(errors="replace"))
                except BrokenPipeError:
                    continue  # lines were overwritten while we read: go on with the next ones
        except BlockingIOError:
            pass  # that was all
        finally:
            os.close(descriptor)
    return "".join(parts)


def _seconds(text: str | None) -> float | None:
    """RFC 3339 with up to nine digits after the second; year 1 means never."""
    if not text or text.startswith("0001"):
        return None
    whole, dot, rest = text.partition(".")
    digits = rest[: next((i for i, char in enumerate(rest) if not char.isdigit()), len(rest))]
    zone = rest[len(digits) :] if dot else ""
    moment = datetime.fromisoformat((whole + zone).replace("Z", "+00:00"))
    return moment.timestamp() + (float(f"0.{digits}") if digits else 0.0)

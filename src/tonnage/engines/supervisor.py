"""A small process beside each local job: sets its limits, starts it, keeps what it prints and writes down how it ended.

Started by `local`; outlives the command that started it, so that the exit code is known to whoever asks later.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tonnage.engines.cgroups import Group, create_group
from tonnage.engines.folders import read_json, write_json
from tonnage.engines.log_parts import LogWriter
from tonnage.engines.processes import birth

STATE, JOB = "state.json", "job.json"
_LOG_SECONDS = 1.0


def main(folder: Path) -> None:
    """Two forks: the first process ends at once, so that nobody has to wait for the second."""
    environment = json.load(sys.stdin)
    if os.fork():
        os._exit(0)
    os.setsid()
    job = read_json(folder / JOB) | {"environment": environment}
    group = create_group(f"{job['name']}-{os.getpid()}", memory_bytes=job["memory_bytes"], pids=job["pids"])
    try:
        _supervise(folder, job, group)
    finally:
        group.remove()


def _supervise(folder: Path, job: dict[str, Any], group: Group) -> None:
    state: dict[str, Any] = {"supervisor": os.getpid(), "supervisor_birth": birth(os.getpid())}
    state |= {"notes": _notes(group), "groups": {name: str(path) for name, path in group.folders.items()}}
    log = LogWriter(folder, job["log_bytes"])
    try:
        child = _start(job, group)
    except (OSError, subprocess.SubprocessError) as error:
        write_json(
            folder / STATE, state | {"state": "refused", "reason": str(error), "errno": getattr(error, "errno", 0)}
        )
        return
    assert child.stdout is not None
    log.start(child.stdout)
    state |= {"pid": child.pid, "birth": birth(child.pid), "started_at": time.time()}
    stopper = _Stopper(child, job["grace_seconds"])
    signal.signal(signal.SIGTERM, stopper.stop)
    signal.signal(signal.SIGALRM, stopper.kill)
    write_json(folder / STATE, state | {"state": "running"})
    code = child.wait()
    signal.alarm(0)
    killed_for_memory = group.memory_kills() > 0
    end_children(child.pid, group)
    log.finish(_LOG_SECONDS)  # before the end is told: whoever follows reads until then
    write_json(folder / STATE, state | _ending(code, stopper.is_stopped, killed_for_memory))


class _Stopper:
    """SIGTERM for the job's processes, and SIGKILL if that was not enough."""

    def __init__(self, child: subprocess.Popen[bytes], grace_seconds: float) -> None:
        self.is_stopped = False
        self._child, self._grace_seconds = child, grace_seconds

    def stop(self, *_: object) -> None:
        self.is_stopped = True
        self._signal(signal.SIGTERM)
        signal.setitimer(signal.ITIMER_REAL, max(self._grace_seconds, 0.001))

    def kill(self, *_: object) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):  # it may have ended by itself at this moment
            os.killpg(self._child.pid, number)


def _start(job: dict[str, Any], group: Group) -> subprocess.Popen[bytes]:
    def limit() -> None:  # between fork and exec, in the child
        group.join(0)
        if job["cores"] and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, job["cores"])
        if "memory" not in group.folders:
            resource.setrlimit(resource.RLIMIT_AS, (job["memory_bytes"], job["memory_bytes"]))

    return subprocess.Popen(
        job["command"],
        cwd=job["workdir"] or None,
        env=job["environment"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=limit,
    )


def _notes(group: Group) -> list[str]:
    notes = []
    if "memory" not in group.folders:
        notes.append(
            "no control group could be made: the address space of each process is limited instead of its memory"
        )
    if "pids" not in group.folders:
        notes.append("no control group could be made: the number of processes is not limited")
    return notes


def end_children(pid: int, group: Group) -> None:
    """What the job started and left behind ends with it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    for member in group.members() - {os.getpid()}:
        with suppress(ProcessLookupError):
            os.kill(member, signal.SIGKILL)
    deadline = time.monotonic() + 2
    while group.members() and time.monotonic() < deadline:
        time.sleep(0.01)  # a folder with dying processes in it cannot be removed


def _ending(code: int, is_stopped: bool, killed_for_memory: bool) -> dict[str, Any]:
    """Exit codes as a shell gives them: 128 and the signal."""
    exit_code = 128 - code if code < 0 else code
    state, reason = ("succeeded" if exit_code == 0 else "failed"), ""
    if is_stopped:
        state = "cancelled"
    elif killed_for_memory and exit_code == 137:
        reason = "killed for memory (exit 137)"
    elif killed_for_memory and exit_code:
        reason = f"one of its processes was killed for memory (exit {exit_code})"
    elif code < 0:
        reason = f"ended by signal {signal.Signals(-code).name} (exit {exit_code})"
    return {"state": state, "exit_code": exit_code, "reason": reason, "ended_at": time.time()}


if __name__ == "__main__":
    main(Path(sys.argv[1]))

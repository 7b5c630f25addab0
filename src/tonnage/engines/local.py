"""The engine `local`: a process of its own session on this machine, with its limits, that outlives the command."""

from __future__ import annotations

import errno
import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from tonnage.engines.base import EngineOptions, Job, JobId, JobState, JobStatus, Manifest, Resources, own_options
from tonnage.engines.bundle import write_files
from tonnage.engines.cgroups import Group
from tonnage.engines.folders import read_json, state_folder, write_json
from tonnage.engines.free_gpus import GPU_KIND, choose_free, choose_planned, gpu_holders
from tonnage.engines.host import Host, check_fits, node_for, read_host
from tonnage.engines.log_parts import read_log
from tonnage.engines.names import check_environment, check_labels, check_name
from tonnage.engines.ports import check_ports, check_ports_are_free
from tonnage.engines.processes import is_same, kill_group
from tonnage.engines.recording import without_recorder
from tonnage.engines.supervisor import JOB, STATE, end_children
from tonnage.errors import InvalidFile, NotFound, TonnageError, Unreachable, UsageError
from tonnage.units import format_bytes

_START_SECONDS = 20.0
_COPY = "program"  # in the folder of a job: its own files, where it does not run in place
_STATES = {name: JobState(name) for name in ("running", "succeeded", "failed", "cancelled")}


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions(EngineOptions):
    """How local processes are treated."""

    grace_seconds: float = 10.0  # from SIGTERM to SIGKILL
    log_bytes: int = 64 << 20  # of what a job prints; the first third and at least the last third are kept


class LocalEngine:
    """Processes on this machine. What they print and how they end is kept in a folder each."""

    name: ClassVar[str] = "local"
    Options: ClassVar[type[EngineOptions]] = LocalOptions

    def __init__(self, folder: Path | None = None, host: Host | None = None) -> None:
        self._asked_folder, self._asked_host = folder, host

    @cached_property
    def host(self) -> Host:
        return self._asked_host or read_host()

    @cached_property
    def folder(self) -> Path:
        folder = self._asked_folder or state_folder() / "local"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder

    def plan(self, job: Job, options: EngineOptions) -> Manifest:
        own_options(options, LocalOptions)
        check_name(job.name)
        check_labels(job.labels)
        check_environment(job.environment)
        check_ports(job.ports)
        for refused, reason in _refusals(job):
            if refused:
                raise UsageError(reason, "--engine podman can do that")
        return Manifest(engine=self.name, name=job.name, text=_render(job), job=job, options=options)

    def submit(self, manifest: Manifest) -> JobId:
        job, options = manifest.job, own_options(manifest.options, LocalOptions)
        check_fits(job.resources, self.host)
        check_ports_are_free(job.ports)
        with gpu_holders(self, job.resources.gpu_count) as holders:
            order = self._order(job, options, self._choose_gpus(job.resources, holders))
            self._run(job, order)
        return JobId(job.name)

    def state(self, job_id: JobId) -> JobStatus:
        return _status(self._read(job_id))

    def cancel(self, job_id: JobId) -> None:
        state = self._read(job_id)
        if state["state"] != "running":
            return
        if is_same(state["supervisor"], state["supervisor_birth"]):
            os.kill(state["supervisor"], signal.SIGTERM)
            self._wait_for_end(job_id)
        elif kill_group(state["pid"], state["birth"]):
            group = Group({name: Path(path) for name, path in state["groups"].items()})
            end_children(state["pid"], group)  # what its supervisor would have done
            group.remove()
            write_json(self.folder / job_id / STATE, state | {"state": "cancelled", "ended_at": time.time()})

    def logs(self, job_id: JobId, *, follow: bool = False) -> Iterator[str]:
        self._read(job_id)
        return read_log(self.folder / job_id, lambda: follow and not self.state(job_id).state.is_over)

    def jobs(self) -> Iterator[tuple[JobId, JobStatus, Mapping[str, str]]]:
        for folder in sorted(self.folder.iterdir()):
            order, state = read_json(folder / JOB), read_json(folder / STATE)
            if order and state:
                yield JobId(folder.name), _status(state), order["labels"]

    def held_gpus(self) -> Iterator[tuple[str, JobId]]:
        for order in self._running_orders():
            for gpu in order.get("gpus", ()):  # those of older versions did not tell
                yield gpu, JobId(order["name"])

    def can_share(self, gpus: Collection[str], options: EngineOptions) -> bool:  # noqa: ARG002 - all of them, always
        return True

    def remove(self, job_id: JobId) -> None:
        try:
            is_over = self.state(job_id).state.is_over
        except InvalidFile:
            is_over = True  # nobody can tell any more; what is left of it goes
        if not is_over:
            raise UsageError(f"{job_id} is still running", f"tonnage stop {job_id}")
        shutil.rmtree(self.folder / job_id)

    # -- inside -----------------------------------------------------------------------------------------------------------

    def _run(self, job: Job, order: dict[str, Any]) -> None:
        try:
            folder = self.folder / job.name
            folder.mkdir(mode=0o700)
        except FileExistsError:
            raise UsageError(f"there is a local job {job.name} already", "choose another --name") from None
        try:
            if job.copied_words and job.source is not None:
                write_files(folder / _COPY, job.source.files)
            write_json(folder / JOB, order)
            self._start(folder, job, order["gpus"])
        except BaseException:
            _clean_up(folder)
            raise

    def _order(self, job: Job, options: LocalOptions, gpus: list[str]) -> dict[str, Any]:
        return {
            "name": job.name,
            "command": _command(job, self.folder / job.name / _COPY),
            "workdir": job.workdir,
            "labels": dict(job.labels),
            "cores": self._choose_cores(job.resources, gpus),
            "gpus": gpus,
            "memory_bytes": job.resources.memory_bytes,
            "pids": job.resources.pids,
            "grace_seconds": options.grace_seconds,
            "log_bytes": options.log_bytes,
        }

    def _choose_gpus(self, resources: Resources, holders: Mapping[str, JobId]) -> list[str]:
        candidates = [f"{GPU_KIND}={gpu.index}" for gpu in self.host.matching_gpus(resources.gpu)]
        if resources.gpu_indices:
            return choose_planned(resources, GPU_KIND, candidates, holders)
        return choose_free(resources.gpu_count, candidates, holders, resources.gpu)

    def _choose_cores(self, resources: Resources, gpus: list[str]) -> list[int]:
        """Those first that no other local job was given."""
        node = node_for(resources, self.host, gpus)
        candidates = self.host.cores if node is None else self.host.node(node).cores
        busy = [core for order in self._running_orders() for core in order["cores"]]
        by_use = sorted(candidates, key=lambda core: (busy.count(core), core))
        return sorted(by_use[: math.ceil(resources.cpu_cores)])

    def _running_orders(self) -> Iterator[dict[str, Any]]:
        for job_id, status, _ in self.jobs():
            if status.state is JobState.RUNNING:
                yield read_json(self.folder / job_id / JOB)

    def _start(self, folder: Path, job: Job, gpus: list[str]) -> None:
        command = [sys.executable, "-P", "-m", "tonnage.engines.supervisor", str(folder)]
        environment = {**os.environ, **_gpu_environment(gpus), **job.environment}
        # Through a pipe: there may be secrets in it, which no file shall keep.
        given = json.dumps(environment).encode()
        with open(folder / "supervisor.log", "wb") as log:
            subprocess.run(command, input=given, stdout=log, stderr=log, cwd="/", check=False)
        state = _wait_for(folder / STATE, _START_SECONDS)
        if state is None:
            said = (folder / "supervisor.log").read_text(errors="replace").strip().splitlines()
            raise Unreachable(f"the process that starts {job.name} did not answer: {said[-1] if said else 'no word'}")
        if state["state"] == "refused":
            raise _refused(job, state)

    def _wait_for_end(self, job_id: JobId) -> None:
        """The supervisor kills after the grace of this job; one second more is for writing it down."""
        order = read_json(self.folder / job_id / JOB)
        deadline = time.monotonic() + order["grace_seconds"] + 3
        while time.monotonic() < deadline:
            if _status(self._read(job_id)).state.is_over:
                return
            time.sleep(0.02)
        raise Unreachable(f"{job_id} did not end", "try again")

    def _read(self, job_id: JobId) -> dict[str, Any]:
        state: dict[str, Any] | None = read_json(self.folder / job_id / STATE) if _is_plain(job_id) else None
        if state is None:
            raise NotFound(f"there is no local job {job_id!r}", "`tonnage status` lists all")
        return state


def _gpu_environment(gpus: list[str]) -> dict[str, str]:
    """No GPU was asked for: then none is seen."""
    numbers = ",".join(gpu.rpartition("=")[2] for gpu in gpus)
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": numbers}


def _is_plain(job_id: str) -> bool:
    return job_id not in ("", ".", "..") and Path(job_id).name == job_id


def _refusals(job: Job) -> list[tuple[bool, str]]:
    moved = next((f"{a} to {b}" for a, b in job.ports if a != b), "")
    return [
        (bool(job.mounts), "local processes see all folders as they are: nothing can be mounted"),
        (bool(moved), f"local processes have this machine's ports: {moved} cannot be mapped"),
        (len(job.placements) > 1, f"this is one machine: a gang over {len(job.placements)} nodes needs another engine"),
        (job.replicas > 1, f"a local job is one process, not {job.replicas}"),
        (bool(job.source and job.source.requirements), "local processes run with the packages that are installed"),
    ]


def _command(job: Job, copy: Path) -> list[str]:
    """What was read when the job was made is what runs, even if the user's own files are changed meanwhile."""
    words = enumerate(job.command)
    return [str(copy / word) if number in job.copied_words else word for number, word in words]


def _render(job: Job) -> str:
    resources = job.resources
    gpus = f"{resources.gpu_count} GPUs {resources.gpu}".strip() if resources.gpu_count else "no GPU"
    node = " of one NUMA node" if resources.one_numa_node else ""
    node = node if resources.numa_node is None else f" of NUMA node {resources.numa_node}"
    variables = [f"{key}={shlex.quote(value)}" for key, value in job.environment.items()]
    lines = [
        f"# {resources.cpu_cores:g} CPU cores{node}, {format_bytes(resources.memory_bytes)} of memory, "
        f"{resources.pids} processes, {gpus}",
        *([f"cd {shlex.quote(job.workdir)}"] if job.workdir else []),
        " ".join([*variables, shlex.join(_command(job, Path("PROGRAM")))]),
    ]
    if job.copied_words and job.source is not None:
        lines.insert(1, f"# PROGRAM: a private copy of {', '.join(sorted(without_recorder(job.source)))}")
    return "\n".join(lines) + "\n"


def _wait_for(path: Path, seconds: float) -> dict[str, Any] | None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        state: dict[str, Any] | None = read_json(path)
        if state is not None:
            return state
        time.sleep(0.01)
    return None


def _status(state: dict[str, Any]) -> JobStatus:
    kind, reason = _STATES.get(state["state"], JobState.UNKNOWN), state.get("reason", "")
    if kind is JobState.RUNNING and not is_same(state["supervisor"], state["supervisor_birth"]):
        lost = not is_same(state["pid"], state["birth"])
        kind = JobState.FAILED if lost else JobState.RUNNING
        reason = (
            "it ended together with its supervisor, such as at a restart of the machine"
            if lost
            else "its supervisor is gone"
        )
    return JobStatus(
        state=kind,
        exit_code=state.get("exit_code"),
        reason="; ".join(filter(None, [reason, *state.get("notes", [])])),
        started_at=state.get("started_at"),
        ended_at=state.get("ended_at"),
    )


def _refused(job: Job, state: dict[str, Any]) -> TonnageError:
    if state.get("errno") in (errno.ENOENT, errno.EACCES, errno.ENOTDIR):
        return NotFound(f"{job.name} cannot be started: {state['reason']}")
    return TonnageError(f"{job.name} cannot be started: {state['reason']}")


def _clean_up(folder: Path) -> None:
    """A start that failed leaves nothing: not even a process that was faster than the error."""
    state = read_json(folder / STATE)
    if state and state.get("pid"):
        kill_group(state["pid"], state["birth"])
    shutil.rmtree(folder, ignore_errors=True)

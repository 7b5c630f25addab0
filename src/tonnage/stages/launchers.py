"""Starts workers: as processes of this machine, or as one job each on an engine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Protocol

from tonnage.engines.base import Engine, EngineOptions, Job, JobId, Placement, Resources, StreamsLogs
from tonnage.engines.deploying import end
from tonnage.engines.names import fresh_name, name_like
from tonnage.errors import TonnageError, Unreachable
from tonnage.stages.hosts import StageHost

_SOURCE = Path(__file__).parents[2]  # where this package lies
_LAST_LINES = 3
_STATE_SECONDS = 1.0  # between two questions to an engine


class Launcher(Protocol):
    """`control` is where the controller listens for its workers: a folder for a Unix socket, or a host for TCP."""

    @property
    def control(self) -> str: ...

    def start(self, host: StageHost, arguments: tuple[str, ...], environment: Mapping[str, str]) -> None: ...

    def ended(self, device: str) -> str:
        """How a worker ended, in a few words; "" while it runs."""
        ...

    def process(self, device: str) -> int | None: ...

    def stop(self, seconds: float) -> None:
        """All of them, whatever they do."""
        ...


@dataclass
class ProcessLauncher:
    """Processes of this machine, each behind the words of its host such as `ip netns exec NAME`."""

    python: str = sys.executable
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _outputs: dict[str, IO[bytes]] = field(default_factory=dict)

    @property
    def control(self) -> str:
        return "unix:"

    def start(self, host: StageHost, arguments: tuple[str, ...], environment: Mapping[str, str]) -> None:
        command = [*host.prefix, self.python, *arguments]
        path = os.pathsep.join(filter(None, (str(_SOURCE), os.environ.get("PYTHONPATH", ""))))
        threads = {"OMP_NUM_THREADS": str(host.threads), "MKL_NUM_THREADS": str(host.threads)}
        output = self._outputs[host.device] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `stop`
        try:
            self._processes[host.device] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
                env={**os.environ, "PYTHONPATH": path, **threads, **environment},
            )  # fmt: skip
        except OSError as error:
            raise Unreachable(f"{command[0]} cannot be started for {host.device}: {error.strerror}") from None

    def ended(self, device: str) -> str:
        process = self._processes.get(device)
        code = process.poll() if process is not None else None
        if code is None:
            return ""
        said = self._last_words(device)
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"{how}: {said}" if said else how

    def process(self, device: str) -> int | None:
        return self._processes[device].pid if device in self._processes else None

    def stop(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for process in self._processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(deadline - time.monotonic(), 0.0))
        for process in self._processes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # also what it has started
                process.wait()
        for output in self._outputs.values():
            output.close()
        self._processes.clear()
        self._outputs.clear()

    def _last_words(self, device: str) -> str:
        output = self._outputs[device]
        output.seek(0)
        return _last_lines(output.read().decode(errors="replace").splitlines())


@dataclass
class EngineLauncher:
    """One job a worker on an engine. `job` is the pattern: image, resources, mounts, environment.

    `control_host` is this machine's address as the jobs reach it.
    """

    engine: Engine
    options: EngineOptions = field(default_factory=EngineOptions)
    job: Job = field(default_factory=lambda: Job(name="stage", command=(), resources=Resources(memory_bytes=4 << 30)))
    python: str = sys.executable
    control_host: str = "127.0.0.1"
    _jobs: dict[str, JobId] = field(default_factory=dict)
    _asked: dict[str, float] = field(default_factory=dict)

    @property
    def control(self) -> str:
        return self.control_host

    def start(self, host: StageHost, arguments: tuple[str, ...], environment: Mapping[str, str]) -> None:
        manifest = self.engine.plan(self.job_for(host, arguments, environment), self.options)
        self._jobs[host.device] = self.engine.submit(manifest)

    def ended(self, device: str) -> str:
        """Engines are asked about once a second."""
        if device not in self._jobs or time.monotonic() - self._asked.get(device, -1e9) < _STATE_SECONDS:
            return ""
        self._asked[device] = time.monotonic()
        status = self.engine.state(self._jobs[device])
        if not status.state.is_over:
            return ""
        code = "" if status.exit_code is None else f", exit code {status.exit_code}"
        said = status.reason or self._last_words(device)
        return f"the job {self._jobs[device]} has {status.state}{code}" + (f": {said}" if said else "")

    def process(self, device: str) -> int | None:  # noqa: ARG002 - it may be on another machine
        return None

    def stop(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for job_id in self._jobs.values():
            with suppress(TonnageError):
                while not self.engine.state(job_id).state.is_over and time.monotonic() < deadline:
                    time.sleep(0.1)
        left = [str(job_id) for job_id in self._jobs.values() if not end(job_id, self.engine)]
        self._jobs.clear()
        if left:
            raise Unreachable(f"{', '.join(left)} could not be ended", f"tonnage stop {left[0]}")

    def job_for(self, host: StageHost, arguments: tuple[str, ...], environment: Mapping[str, str]) -> Job:
        resources, indices = self.job.resources, (host.gpu_index,) if host.gpu else ()
        if host.gpu:
            resources = replace(resources, gpu_count=1, gpu=host.gpu, gpu_indices=indices)
        placements = self.job.placements
        if host.node:
            placements = (Placement(node=host.node, gpu=resources.gpu, gpu_indices=indices),)
        threads = {"OMP_NUM_THREADS": str(host.threads)}
        path = {} if self.job.image else {"PYTHONPATH": _python_path()}
        return replace(
            self.job,
            name=fresh_name(name_like(f"stage-{host.device}")),
            command=(self.python, *arguments),
            resources=resources,
            environment={**path, **threads, **self.job.environment, **environment},
            placements=placements,
        )

    def _last_words(self, device: str) -> str:
        if not isinstance(self.engine, StreamsLogs):
            return ""
        return _last_lines(list(self.engine.logs(self._jobs[device])))


def _python_path() -> str:
    return os.pathsep.join(filter(None, (str(_SOURCE), os.environ.get("PYTHONPATH", ""))))


def _last_lines(lines: list[str]) -> str:
    said = [line.strip() for line in lines if line.strip()]
    return " / ".join(said[-_LAST_LINES:])[:300]

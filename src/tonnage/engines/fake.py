"""An engine in memory, for tests, demonstrations and other rooms: jobs run when they are told to.

`FakeEngine(scripts={"train": FakeRun(exit_code=3)})` decides by the first word of the command how a job ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import yaml

from tonnage.engines.base import EngineOptions, Job, JobId, JobState, JobStatus, Manifest
from tonnage.engines.names import check_labels, check_name
from tonnage.errors import NotFound, Unreachable, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeRun:
    """What a command would do. `polls` is how often somebody sees it running before it is over; None: until cancelled."""

    exit_code: int = 0
    polls: int | None = 1
    lines: tuple[str, ...] = ()
    reason: str = ""


@dataclass(slots=True)
class _Entry:
    job: Job
    run: FakeRun
    status: JobStatus
    polls: int = 0


@dataclass
class FakeEngine:
    """Answers like any other engine; `is_reachable = False` is an engine that does not answer."""

    name: ClassVar[str] = "fake"
    Options: ClassVar[type[EngineOptions]] = EngineOptions

    scripts: Mapping[str, FakeRun] = field(default_factory=dict)
    behave: Callable[[Job], FakeRun] | None = None
    is_reachable: bool = True
    _entries: dict[JobId, _Entry] = field(default_factory=dict)

    def plan(self, job: Job, options: EngineOptions) -> Manifest:
        check_name(job.name)
        check_labels(job.labels)
        document = {"name": job.name, "command": list(job.command), "image": job.image}
        text = yaml.safe_dump(document, sort_keys=False)
        return Manifest(engine=self.name, name=job.name, text=text, job=job, options=options)

    def submit(self, manifest: Manifest) -> JobId:
        self._reach()
        job, job_id = manifest.job, JobId(manifest.name)
        if job_id in self._entries:
            raise UsageError(f"there is a job {job_id} already", "choose another --name")
        run = self.behave(job) if self.behave else self.scripts.get(job.command[0], FakeRun())
        self._entries[job_id] = _Entry(job, run, JobStatus(state=JobState.RUNNING, started_at=0.0))
        return job_id

    def state(self, job_id: JobId) -> JobStatus:
        entry = self._find(job_id)
        if not entry.status.state.is_over:
            entry.polls += 1
            if entry.run.polls is not None and entry.polls > entry.run.polls:
                self.finish(job_id)
        return entry.status

    def finish(self, job_id: JobId, exit_code: int | None = None) -> None:
        """The job ends now, as it was told to or with this exit code."""
        entry = self._find(job_id)
        code = entry.run.exit_code if exit_code is None else exit_code
        state = JobState.SUCCEEDED if code == 0 else JobState.FAILED
        entry.status = replace(entry.status, state=state, exit_code=code, reason=entry.run.reason, ended_at=1.0)

    def cancel(self, job_id: JobId) -> None:
        entry = self._find(job_id)
        if not entry.status.state.is_over:
            entry.status = replace(entry.status, state=JobState.CANCELLED, ended_at=1.0)

    def logs(self, job_id: JobId, *, follow: bool = False) -> Iterator[str]:
        entry = self._find(job_id)
        if follow and not entry.status.state.is_over and entry.run.polls is not None:
            self.finish(job_id)
        return iter(entry.run.lines)

    def jobs(self) -> Iterator[tuple[JobId, JobStatus, Mapping[str, str]]]:
        self._reach()
        for job_id, entry in self._entries.items():
            yield job_id, entry.status, entry.job.labels

    def remove(self, job_id: JobId) -> None:
        if not self._find(job_id).status.state.is_over:
            raise UsageError(f"{job_id} is still running", f"tonnage stop {job_id}")
        del self._entries[job_id]

    def _find(self, job_id: JobId) -> _Entry:
        self._reach()
        if job_id not in self._entries:
            raise NotFound(f"there is no job {job_id!r}")
        return self._entries[job_id]

    def _reach(self) -> None:
        if not self.is_reachable:
            raise Unreachable("the fake engine was told not to answer")

"""Deployments: planned, submitted and written down, so that each can be found again whatever engine it is on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tonnage.engines.base import Engine, EngineOptions, Job, JobId, JobState, JobStatus, Removes
from tonnage.engines.folders import read_json, state_folder, write_json
from tonnage.engines.ports import answers
from tonnage.engines.registry import find_engine
from tonnage.errors import InvalidFile, NotFound, TonnageError, Unreachable, UsageError

_POLL_SECONDS = 0.1
DAMAGED = "?"  # in place of an engine's name


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """Something on an engine. `job_id` is what the engine calls it; "" until it has told, where only it can know."""

    id: str
    engine: str
    job_id: JobId
    image: str = ""
    command: tuple[str, ...] = ()
    ports: tuple[tuple[int, int], ...] = ()
    submitted_at: float = 0.0
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    report: Mapping[str, Any] = field(default_factory=dict, hash=False)  # what the server that configured it was told

    @property
    def name_there(self) -> JobId:
        """Of a start that was cut off before it could be written down: the name that was asked for."""
        return self.job_id or JobId(self.id)


class Deployments:
    """What was deployed from here: a small file each, so that two commands at once do not meet."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or state_folder() / "deployments"
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def reserve(self, deployment: Deployment) -> None:
        """The first word about it; of two commands with one name, one is refused."""
        try:
            (self.folder / f"{deployment.id}.json").touch(exist_ok=False)
        except FileExistsError:
            hint = "choose another --name, or let the old one go: tonnage stop with --remove"
            raise UsageError(f"there is a deployment {deployment.id} already", hint) from None
        self.write(deployment)

    def write(self, deployment: Deployment) -> None:
        write_json(self.folder / f"{deployment.id}.json", asdict(deployment))

    def forget(self, deployment: Deployment) -> None:
        (self.folder / f"{deployment.id}.json").unlink(missing_ok=True)

    def all(self) -> Iterator[Deployment]:
        """The oldest first."""
        paths = (
            path for path in self.folder.glob("*.json") if path.stat().st_size
        )  # an empty one is just being written
        found = [deployment for path in paths if (deployment := _read(path)) is not None]
        yield from sorted(found, key=lambda deployment: (deployment.submitted_at, deployment.id))

    def find(self, text: str) -> Deployment:
        """By its id, or by the beginning of one id alone."""
        known = list(self.all())
        exact = [deployment for deployment in known if deployment.id == text]
        begun = [deployment for deployment in known if text and deployment.id.startswith(text)]
        if len(exact or begun) == 1:
            return (exact or begun)[0]
        if begun:
            raise UsageError(f"{text!r} could be {', '.join(deployment.id for deployment in begun)}")
        raise NotFound(f"there is no deployment {text!r}", "`tonnage status` lists all")


def _read(path: Path) -> Deployment | None:
    """A file that is damaged is a deployment of which only the name is known: it can be removed like any other."""
    try:
        document = read_json(path)
        if document is None:
            return None  # it has just gone
        ports = tuple((host_port, job_port) for host_port, job_port in document.pop("ports"))
        return Deployment(command=tuple(document.pop("command")), ports=ports, **document)
    except (InvalidFile, KeyError, TypeError, ValueError, AttributeError):
        return Deployment(id=path.stem, engine=DAMAGED, job_id=JobId(""))


def deploy(job: Job, engine: Engine, options: EngineOptions, deployments: Deployments | None = None) -> Deployment:
    """Plan, submit and write down; nothing stays behind if one of them fails."""
    deployments = deployments or Deployments()
    manifest = engine.plan(job, options)
    deployment = Deployment(
        id=job.name, engine=engine.name, job_id=manifest.job_id, image=job.image, command=job.command, ports=job.ports,
        submitted_at=time.time(), labels=dict(job.labels),
    )  # fmt: skip
    deployments.reserve(deployment)  # first, so that a job is never lost because the disk was full
    job_id = JobId("")
    try:
        job_id = engine.submit(manifest)
        deployment = replace(deployment, job_id=job_id)
        deployments.write(deployment)
    except BaseException:
        if not job_id or end(job_id, engine):
            deployments.forget(deployment)
        raise
    return deployment


def end(job_id: JobId, engine: Engine) -> bool:
    """Whether nothing is left of a job. What could not be ended stays written down, so that it can be found and stopped."""
    try:
        engine.cancel(job_id)
        if isinstance(engine, Removes):
            engine.remove(job_id)
    except TonnageError:
        return False
    return True


def status_of(deployment: Deployment, engine: Engine | None = None) -> JobStatus:
    """As the engine tells it; raises what it raises."""
    return (engine or _engine_of(deployment)).state(deployment.name_there)


def _engine_of(deployment: Deployment) -> Engine:
    if deployment.engine == DAMAGED:
        raise InvalidFile(
            "what was written down about it is damaged", f"tonnage stop {deployment.id} --remove forgets it"
        )
    return find_engine(deployment.engine)


def statuses(deployments: Deployments) -> Iterator[tuple[Deployment, JobStatus]]:
    """Of all; an engine that does not answer is asked once and makes its own unknown, and no others."""
    silent: dict[str, TonnageError] = {}
    for deployment in deployments.all():
        try:
            if deployment.engine in silent:
                raise silent[deployment.engine]
            yield deployment, status_of(deployment)
        except (Unreachable, NotFound, InvalidFile) as error:
            if isinstance(error, Unreachable):
                silent[deployment.engine] = error
            yield deployment, JobStatus(state=JobState.UNKNOWN, reason=error.message)


def stop(deployment: Deployment, deployments: Deployments, *, remove: bool = False) -> JobStatus:
    """End it; with `remove`, forget it and all that it left."""
    try:
        engine = _engine_of(deployment)
        engine.cancel(deployment.name_there)
        status = engine.state(deployment.name_there)
        if remove and isinstance(engine, Removes):
            engine.remove(deployment.name_there)
    except NotFound:
        if not remove:
            raise
        status = JobStatus(state=JobState.UNKNOWN, reason="it was gone already")
    except InvalidFile as error:
        if not remove:
            raise
        status = JobStatus(state=JobState.UNKNOWN, reason=error.message)
        _remove_rest(deployment)
    if remove:
        deployments.forget(deployment)
    return status


def _remove_rest(deployment: Deployment) -> None:
    """What an engine can still find of a job whose state nobody can read."""
    with suppress(TonnageError):
        engine = _engine_of(deployment)
        if isinstance(engine, Removes):
            engine.remove(deployment.name_there)


def wait(
    deployment: Deployment,
    engine: Engine,
    *,
    seconds: float | None = None,
    say: Callable[[JobStatus], None] | None = None,
) -> JobStatus:
    """Until it is over or, if it opens a port here, until somebody answers there."""
    deadline = None if seconds is None else time.monotonic() + seconds
    while True:
        status = engine.state(deployment.job_id)
        if say is not None:
            say(status)
        if status.state.is_over or (deployment.ports and _is_up(deployment, status)):
            return status
        if deadline is not None and time.monotonic() > deadline:
            raise TonnageError(f"{deployment.id} is still {status.state} after {seconds:g} s", status.reason)
        time.sleep(_POLL_SECONDS)


def _is_up(deployment: Deployment, status: JobStatus) -> bool:
    """A cluster's ports are not this machine's: there the readiness of its pods tells."""
    if status.state is not JobState.RUNNING:
        return False
    return deployment.engine == "kubernetes" or answers(deployment.ports[0][0])

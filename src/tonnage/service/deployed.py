"""`tonnage.deploy`: a program or a label on an engine, and what can be asked of it afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tonnage.engines import deploying
from tonnage.engines.base import Engine, EngineOptions, JobStatus, Mount, StreamsLogs
from tonnage.engines.deploying import Deployment, Deployments
from tonnage.engines.jobs import Surroundings, check_image, check_script, hardware_of, job_of
from tonnage.engines.registry import find_engine
from tonnage.errors import UsageError
from tonnage.hardware.quantities import parse_bytes
from tonnage.profile.recorded import without_records
from tonnage.service.label_program import is_label


class Deployed:
    """Something that runs on an engine, or did. `tonnage status`, `logs` and `stop` know it by its `id`."""

    def __init__(self, deployment: Deployment, engine: Engine) -> None:
        self._deployment, self._engine = deployment, engine

    def __repr__(self) -> str:
        return f"<{self.id} on {self._engine.name}>"

    @property
    def id(self) -> str:
        return self._deployment.id

    @property
    def status(self) -> JobStatus:
        return self._engine.state(self._deployment.name_there)

    @property
    def report(self) -> Mapping[str, Any]:
        """Predicted beside measured, once a run that a server configured is over and its server was told."""
        return Deployments().find(self.id).report

    def logs(self, *, follow: bool = False) -> Iterator[str]:
        if not isinstance(self._engine, StreamsLogs):
            raise UsageError(f"the engine {self._engine.name} does not show what jobs print")
        return without_records(self._engine.logs(self._deployment.name_there, follow=follow))

    def wait(
        self, timeout_seconds: float | None = None, progress: Callable[[JobStatus], None] = lambda status: None
    ) -> JobStatus:
        """Until it is over or, if it opens a port, until somebody answers there. Then its server is told, if it has one."""
        status = deploying.wait(self._deployment, self._engine, seconds=timeout_seconds, say=progress)
        self.tell_server(status)
        return status

    def tell_server(self, status: JobStatus | None = None) -> Mapping[str, Any]:
        """What the run did, to the server that configured it: once, when it is over. Raises `Unreachable`."""
        from tonnage.service.reporting import report_run

        return report_run(self._deployment, self._engine, status or self.status, Deployments())

    def stop(self, *, remove: bool = False) -> JobStatus:
        return deploying.stop(self._deployment, Deployments(), remove=remove)


def deploy(
    program: str | Path,
    *,
    arguments: Sequence[str] = (),
    engine: str = "local",
    image: str = "",
    name: str = "",
    cpu_cores: float = 1.0,
    memory: str | int = "4GiB",
    gpus: int | None = None,
    gpu: str = "",
    environment: Mapping[str, str] | None = None,
    mounts: Sequence[Mount] = (),
    ports: Sequence[tuple[int, int]] = (),
    replicas: int = 0,
    folder: str | Path | None = None,
    requirements: str | Path | None = None,
    options: EngineOptions | None = None,
) -> Deployed:
    """Put a script on an engine with exactly these resources, or a label with what its server has signed.

    With a label (`label.json`), resources, image and arguments are the label's and may not be given. Ports are pairs of
    this machine's and the program's own.
    """
    path, chosen = Path(program), find_engine(engine)
    if replicas < 0:
        raise UsageError(f"{replicas} replicas are impossible")
    surroundings = Surroundings(
        environment=dict(environment or {}), mounts=tuple(mounts), ports=tuple(ports), labels={}, replicas=replicas
    )
    own = options or chosen.Options()
    if is_label(path):
        from tonnage.service.label_jobs import job_of_label

        if arguments or image or gpu or gpus is not None or folder or requirements:
            raise UsageError(f"{path} says what runs, and on what", "leave everything out that the label says")
        with job_of_label(path, engine, name, surroundings) as job:
            return Deployed(deploying.deploy(job, chosen, own), chosen)
    check_script(path)
    check_image(engine, image)
    job = job_of(
        hardware_of(cpu_cores, memory if isinstance(memory, int) else _bytes(memory), gpus, gpu), path, arguments,
        image=image, name=name, folder=None if folder is None else Path(folder),
        requirements=None if requirements is None else Path(requirements), surroundings=surroundings,
    )  # fmt: skip
    return Deployed(deploying.deploy(job, chosen, own), chosen)


def _bytes(text: str) -> int:
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise UsageError(f"memory {text}: {error}", "for example: 16GiB") from None

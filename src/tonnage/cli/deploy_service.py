"""`tonnage deploy service.yaml`: an inference server in a container, started, reconfigured and waited for."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tonnage.engines.base import Engine, EngineOptions, Job, JobStatus
    from tonnage.engines.deploying import Deployment, Deployments
    from tonnage.serve.service_file import Service

# What may be typed beside a service file.
_BESIDE = frozenset({"program", "engine", "name", "option", "dry_run", "wait", "timeout", "as_json"})


@dataclass(frozen=True, slots=True)
class Asked:
    """What was typed beside the file."""

    engine: Engine
    options: EngineOptions
    name: str = ""
    dry_run: bool = False
    wait: bool = False
    timeout: float | None = None
    as_json: bool = False


def is_service_file(program: Path) -> bool:
    return program.suffix in (".yaml", ".yml")


def deploy_service(path: Path, asked: Asked, typed: frozenset[str]) -> int:
    """Starts what is not there; gives a new configuration to what runs already."""
    from tonnage.engines.deploying import Deployments, deploy
    from tonnage.serve.service_file import read_service
    from tonnage.serve.service_job import job_of_service

    _refuse_contradictions(path, typed)
    service = read_service(path)
    job = job_of_service(service, asked.engine.name, asked.name)
    if asked.dry_run:
        text = asked.engine.plan(job, asked.options).text
        told = json.dumps({"engine": asked.engine.name, "name": job.name, "manifest": text}) + "\n"
        print(told if asked.as_json else text, end="")
        return 0
    deployments = Deployments()
    deployment = _running(deployments, job, asked)
    if deployment is not None:
        _reconfigure(deployment, job, asked)
    else:
        _check_ports(service, asked)
        _check_models(service, asked)
        deployment = deploy(job, asked.engine, asked.options, deployments)
    return _report(deployment, service, asked)


def _refuse_contradictions(file: Path, typed: frozenset[str]) -> None:
    from tonnage.errors import UsageError

    said = sorted(typed - _BESIDE)
    if said:
        option = said[0] if said[0] == "arguments" else f"--{said[0].replace('_', '-')}"
        raise UsageError(f"{file} says what runs, and on what: {option} cannot be given with it", "write it there")


def _running(deployments: Deployments, job: Job, asked: Asked) -> Deployment | None:
    """A service of that name on that engine."""
    from tonnage.engines.service import SERVICE_LABEL

    found = [each for each in deployments.all() if each.id == job.name]
    if found and found[0].engine == asked.engine.name and SERVICE_LABEL in found[0].labels:
        return found[0]
    return None


def _reconfigure(deployment: Deployment, job: Job, asked: Asked) -> None:
    from tonnage.engines.base import Reconfigures
    from tonnage.errors import UsageError
    from tonnage.serve.service_job import DIGEST_LABEL

    let_go = f"tonnage stop {deployment.id} --remove, and deploy it again"
    if asked.engine.state(deployment.name_there).state.is_over:
        raise UsageError(f"there is a service {deployment.id} already, and it has ended", let_go)
    if deployment.labels.get(DIGEST_LABEL) != job.labels[DIGEST_LABEL] or not isinstance(asked.engine, Reconfigures):
        raise UsageError(
            f"{deployment.id} runs already, and more has changed than can be while it does",
            f"image, models, device, resources, ports, TLS and the like need a new start: {let_go}",
        )
    asked.engine.reconfigure(asked.engine.plan(job, asked.options))
    print(f"{deployment.id} runs already: it was given the new configuration", file=sys.stderr)


def _check_ports(service: Service, asked: Asked) -> None:
    from tonnage.engines.ports import free_port, is_taken

    if asked.engine.name == "kubernetes":
        return
    for name, port in service.file.ports.model_dump().items():
        if is_taken(port):
            raise service.error(("ports", name), f"port {port} is taken", f"choose another one, such as {free_port()}")


def _check_models(service: Service, asked: Asked) -> None:
    """Before the server in the container finds it out."""
    from tonnage.engines.containerfile import NOBODY

    kind, place = service.models
    others = Path(place).stat().st_mode & 0o005 if kind == "folder" else 0o005
    if others != 0o005 and getattr(asked.options, "user", "") == NOBODY:
        raise service.error(
            ("models",), f"{place} cannot be read by nobody, whom the server runs as",
            f"chmod o+rx {place}, or -o user= names another user",
        )  # fmt: skip


def _report(deployment: Deployment, service: Service, asked: Asked) -> int:
    from tonnage.cli.deployments import describe

    if not asked.as_json:
        print(deployment.id, flush=True)  # at once: whoever waits may be ended first
    if not asked.wait and not asked.as_json:
        return 0
    status = _wait(deployment, service, asked) if asked.wait else asked.engine.state(deployment.job_id)
    if asked.as_json:
        print(json.dumps(describe(deployment, status)))
    elif asked.engine.name != "kubernetes":
        ports, scheme = service.file.ports, "https" if service.file.server.tls else "http"
        print(f"REST at {scheme}://127.0.0.1:{ports.http}, gRPC at 127.0.0.1:{ports.grpc}", file=sys.stderr)
    return 0


def _wait(deployment: Deployment, service: Service, asked: Asked) -> JobStatus:
    from tonnage.cli.output import progress
    from tonnage.serve.service_waiting import DoesNotComeUp, wait_until_ready

    try:
        with progress() as say:
            return wait_until_ready(deployment, asked.engine, asked.timeout or service.file.start_seconds, say)
    except DoesNotComeUp as error:
        for line in error.lines:
            print(f"  {line}", file=sys.stderr)
        raise
    except KeyboardInterrupt:
        print(f"{deployment.id} goes on; tonnage stop {deployment.id} ends it", file=sys.stderr)
        raise

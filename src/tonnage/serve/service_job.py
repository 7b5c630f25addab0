"""From service.yaml to a Job of an engine: the container, the files that the server in it follows, and its probes."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from tonnage.engines.base import Job, Mount, Resources, Source
from tonnage.engines.bundle import digest_of
from tonnage.engines.containerfile import FOLDER
from tonnage.engines.jobs import hardware_of
from tonnage.engines.names import is_name, name_like
from tonnage.engines.service import SERVICE_LABEL, Autoscale, Probes, ServiceTraits
from tonnage.errors import NotFound, UsageError
from tonnage.serve.health import LIVE, READY
from tonnage.serve.service_file import Service
from tonnage.serve.service_folders import FILE, GRPC, HTTP, METRICS, MODELS, folders_of

ENGINES = ("podman", "docker", "kubernetes")
COMMAND = ("python3", "-m", "tonnage", "serve", "--config", FILE)
QUEUE_DELAY = "tonnage_queue_delay_seconds"
DIGEST_LABEL = "tonnage.service-digest"


def job_of_service(service: Service, engine: str, name: str = "") -> Job:
    """What is deployed; raises `UsageError` for what this engine cannot do."""
    if engine not in ENGINES:
        raise UsageError(f"{service.path} is a service, and {engine} runs none", f"--engine {' or '.join(ENGINES)}")
    is_cluster, file = engine == "kubernetes", service.file
    mounts, models = _models(service, is_cluster)
    traits = replace(
        traits_of(service),
        folders=folders_of(service, is_cluster, models),
        autoscale=_autoscale(service, is_cluster),
    )
    job = Job(
        name=_name(service, name),
        image=image_of(service),
        source=source_of(service),
        command=COMMAND,
        resources=_resources(service),
        environment={"PYTHONUNBUFFERED": "1"},
        mounts=mounts,
        ports=ports_of(service),
        labels={SERVICE_LABEL: "https" if file.server.tls else "http"},
        replicas=_instances(service, is_cluster),
        service=traits,
    )
    fixed = (models, file.server.device, file.server.log_format)
    return replace(job, labels={**job.labels, DIGEST_LABEL: _digest(job, traits, fixed)})


def traits_of(service: Service) -> ServiceTraits:
    """Without what depends on the engine."""
    server = service.file.server
    return ServiceTraits(
        probes=Probes(
            port=HTTP, live_path=LIVE, ready_path=READY, is_https=server.tls is not None,
            start_seconds=service.file.start_seconds,
        ),
        drain_seconds=server.drain_seconds,
        restarts=service.file.restarts,
        port_names={HTTP: "http", GRPC: "grpc", METRICS: "metrics"},
        metrics_port=METRICS,
    )  # fmt: skip


def ports_of(service: Service) -> tuple[tuple[int, int], ...]:
    ports = service.file.ports
    return (ports.http, HTTP), (ports.grpc, GRPC), (ports.metrics, METRICS)


def _digest(job: Job, traits: ServiceTraits, fixed: tuple[str, ...]) -> str:
    """Of all that cannot be changed while it runs: everything but most of what is in the files that it follows."""
    source = (job.source.requirements, job.source.digest) if job.source else ()
    mounts = [(mount.source, mount.target) for mount in job.mounts]
    folders = [(folder.target, folder.secret) for folder in traits.folders]
    size = job.resources
    hardware = (size.cpu_cores, size.memory_bytes, size.pids, size.gpu_count, size.gpu)
    watched = (traits.probes.start_seconds, traits.drain_seconds, traits.restarts, traits.autoscale)
    parts = (job.image, job.command, hardware, job.ports, job.replicas, source, mounts, folders, watched, fixed)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def _name(service: Service, name: str) -> str:
    chosen = name or service.file.name
    if not chosen:
        raise service.error(("name",), "is missing", "a service that is deployed needs a name")
    if not is_name(chosen):
        rule = "small letters, digits and dashes, a letter first, at most 50 characters"
        raise service.error(("name",), f"{chosen!r} cannot be a name: {rule}", f"for example: {name_like(chosen)}")
    return chosen


def image_of(service: Service) -> str:
    if not service.file.image:
        raise service.error(("image",), "is missing", "name an image with Python, and what to `install` into it")
    return service.file.image


def _resources(service: Service) -> Resources:
    asked = service.file.resources
    try:
        hardware = hardware_of(asked.cpus, asked.memory, asked.gpus, asked.gpu)
    except NotFound as error:
        raise service.error(("resources", "gpu"), error.message, error.hint) from None
    except UsageError as error:
        raise service.error(("resources",), error.message, error.hint) from None
    on_gpu = service.file.server.device != "cpu"
    if on_gpu and not hardware.gpu_count:
        raise service.error(
            ("server", "device"), f"is {service.file.server.device}, but resources have no GPU", "resources: {gpus: 1}"
        )
    return Resources(
        cpu_cores=hardware.cpu_cores, memory_bytes=hardware.memory_bytes, pids=asked.pids,
        gpu_count=hardware.gpu_count, gpu=hardware.gpu,
    )  # fmt: skip


def _instances(service: Service, is_cluster: bool) -> int:
    if service.file.instances > 1 and not is_cluster:
        raise service.error(
            ("instances",), f"is {service.file.instances}, and one container is started",
            "--engine kubernetes runs several; instances of a model inside one server are in its config.yaml",
        )  # fmt: skip
    return service.file.instances


def _autoscale(service: Service, is_cluster: bool) -> Autoscale | None:
    scale = service.file.autoscale
    if scale is None or not is_cluster:
        return None
    return Autoscale(
        least=scale.min, most=scale.max, metric=QUEUE_DELAY, target_thousandths=max(round(scale.queue_delay * 1000), 1)
    )


def source_of(service: Service) -> Source | None:
    """Wheels are copied into the image; everything else is what pip is asked for."""
    if not service.file.install:
        return None
    files, requirements = {}, []
    for number, entry in enumerate(service.file.install):
        if not entry.endswith(".whl"):
            requirements.append(entry)
            continue
        path = service.path_of(entry)
        if not path.is_file():
            raise service.error(("install", number), f"there is no file {path}")
        files[path.name] = path.read_bytes()
        place = f"{FOLDER}/{path.name}"
        requirements.append(f"tonnage[serve] @ file://{place}" if path.name.startswith("tonnage-") else place)
    return Source(files=files, digest=digest_of(files), requirements=tuple(requirements))


def _models(service: Service, is_cluster: bool) -> tuple[tuple[Mount, ...], str]:
    """What is mounted, and where the server finds it."""
    kind, place = service.models
    if kind == "image":
        return (), place
    if kind == "folder" and is_cluster:
        raise service.error(
            ("models",), "is a folder of this machine, which the nodes of a cluster do not have",
            "pvc:NAME, node:/PATH or image:/PATH",
        )  # fmt: skip
    if kind != "folder":
        if not is_cluster:
            raise service.error(("models",), "is for a cluster", "name a folder of this machine")
        return (Mount(source=f"{kind}:{place}", target=MODELS),), MODELS
    if not Path(place).is_dir():
        raise service.error(("models",), f"there is no folder {place}")
    return (Mount(source=place, target=MODELS),), MODELS

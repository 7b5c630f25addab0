"""What `podman create` and `docker create` are told: limits, protection, devices, ports, labels. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tonnage.engines.base import EngineOptions, Job, Resources
from tonnage.engines.host import Host, format_cores
from tonnage.engines.ports import LOOPBACK
from tonnage.errors import DoesNotFit

OWN_LABEL = "tonnage.name"
# Values go through the client's environment, since everybody can read a command line; these it would take for itself.
_CLIENTS_OWN = re.compile(
    r"PATH|HOME|USER|TMPDIR|LANG|(LD|LC|DOCKER|BUILD\w*|CONTAINERS?|REGISTRY|XDG)_\w+|\w+_(PROXY|proxy)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerOptions(EngineOptions):
    """How containers are treated."""

    user: str = "65534:65534"  # nobody; a folder that the job writes to must belong to this user
    cdi_kind: str = "nvidia.com/gpu"
    devices: str = ""  # names of CDI devices, separated by commas; else the first that fit
    network: str = ""  # as the client calls it; "" for its own default
    tmp_bytes: int = 1 << 30  # of /tmp, the only place that can be written to; counts as the job's memory
    grace_seconds: int = 10  # from SIGTERM to SIGKILL


def create_arguments(job: Job, options: ContainerOptions, host: Host, cdi: Sequence[str], image: str) -> list[str]:
    """Everything after the client's name."""
    return [
        "create", f"--name={job.name}", "--pull=never", "--init",
        *_limits(job.resources, host),
        *_protection(options),
        *_devices(job.resources, options, host, cdi),
        *_surroundings(job, options),
        image, *job.command,
    ]  # fmt: skip


def environment_of(job: Job) -> dict[str, str]:
    """Home is where something can be written: many libraries keep a cache there."""
    return {"HOME": "/tmp", **job.environment}


def _limits(resources: Resources, host: Host) -> Iterator[str]:
    yield f"--cpus={resources.cpu_cores:g}"
    yield f"--memory={resources.memory_bytes}b"
    yield f"--memory-swap={resources.memory_bytes}b"  # memory and swap together: no swap
    yield f"--pids-limit={resources.pids}"
    if resources.shared_memory_bytes is not None:
        yield f"--shm-size={resources.shared_memory_bytes}b"
    if resources.numa_node is not None:
        yield f"--cpuset-cpus={format_cores(host.node(resources.numa_node).cores)}"
        yield f"--cpuset-mems={resources.numa_node}"


def _protection(options: ContainerOptions) -> Iterator[str]:
    yield "--read-only"
    yield f"--tmpfs=/tmp:rw,nosuid,nodev,size={options.tmp_bytes},mode=1777"
    yield "--cap-drop=all"
    yield "--security-opt=no-new-privileges"
    if options.user:
        yield f"--user={options.user}"


def _devices(resources: Resources, options: ContainerOptions, host: Host, cdi: Sequence[str]) -> Iterator[str]:
    for name in _chosen(resources, options, host, cdi):
        yield f"--device={options.cdi_kind}={name}"


def _chosen(resources: Resources, options: ContainerOptions, host: Host, cdi: Sequence[str]) -> list[str]:
    """Those that the user names; else the first of the right model; else the first that CDI knows."""
    wanted = resources.gpu_count
    if options.devices:
        named = options.devices.split(",")
        if wanted not in (0, len(named)):
            raise DoesNotFit(f"{wanted} GPUs are wanted, but {len(named)} devices are named: {options.devices}")
        return named
    if wanted == 0:
        return []
    matching = [str(gpu.index) for gpu in host.matching_gpus(resources.gpu)]
    available = [name for name in matching if name in cdi or not cdi] if host.gpus else list(cdi)
    if len(available) < wanted:
        kind = f"{resources.gpu} GPUs" if resources.gpu else "GPUs"
        raise DoesNotFit(f"{wanted} {kind} are wanted, this machine has {len(available)}", _hint(options, cdi))
    return available[:wanted]


def _hint(options: ContainerOptions, cdi: Sequence[str]) -> str:
    if cdi:
        return f"CDI names {', '.join(cdi)}"
    return f"no CDI file in /etc/cdi names a device {options.cdi_kind}; make it with nvidia-ctk cdi generate"


def _surroundings(job: Job, options: ContainerOptions) -> Iterator[str]:
    if options.network:
        yield f"--network={options.network}"
    for host_port, job_port in job.ports:
        yield f"--publish={LOOPBACK}:{host_port}:{job_port}"
    for mount in job.mounts:
        read_only = ",readonly" if mount.read_only else ""
        yield f"--mount=type=bind,source={mount.source},target={mount.target}{read_only}"
    for key, value in sorted(environment_of(job).items()):
        yield f"--env={key}={value}" if _CLIENTS_OWN.fullmatch(key) else f"--env={key}"
    if job.workdir:
        yield f"--workdir={job.workdir}"
    for key, value in sorted({OWN_LABEL: job.name, **job.labels}.items()):
        yield f"--label={key}={value}"

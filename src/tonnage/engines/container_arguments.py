"""What `podman create` and `docker create` are told: limits, protection, devices, ports, labels. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tonnage.engines.base import EngineOptions, Job, JobId, Resources
from tonnage.engines.container_environment import environment_arguments
from tonnage.engines.container_service import service_arguments
from tonnage.engines.free_gpus import GPU_KIND, choose_free, choose_planned
from tonnage.engines.host import Host, format_cores, node_for
from tonnage.engines.ports import LOOPBACK
from tonnage.errors import DoesNotFit

OWN_LABEL, GPUS_LABEL = "tonnage.name", "tonnage.gpus"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerOptions(EngineOptions):
    """How containers are treated."""

    user: str = "65534:65534"  # nobody; a folder that the job writes to must belong to this user
    cdi_kind: str = GPU_KIND
    devices: str = ""  # names of CDI devices, separated by commas, whoever holds them; else the first that are free
    network: str = ""  # as the client calls it; "" for its own default
    tmp_bytes: int = 1 << 30  # of /tmp, the only place that can be written to; counts as the job's memory
    grace_seconds: int = 10  # from SIGTERM to SIGKILL


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What of the machine a job gets; it can be told only when the job starts."""

    gpus: Sequence[str]  # as CDI names them
    node: str = ""  # the NUMA node that it is bound to
    cores: str = ""  # of this node, as the kernel lists them


def create_arguments(
    job: Job, options: ContainerOptions, chosen: Chosen, image: str, *, health_words: bool = False
) -> list[str]:
    """Everything after the client's name. `health_words`: it takes a health check without a shell."""
    return [
        "create", f"--name={job.name}", "--pull=never", "--init",
        *_limits(job.resources, chosen),
        *_protection(options),
        *(service_arguments(job.service, health_words=health_words) if job.service else ()),
        *(f"--device={gpu}" for gpu in chosen.gpus),
        *_surroundings(job, options, chosen.gpus),
        image, *job.command,
    ]  # fmt: skip


def _limits(resources: Resources, chosen: Chosen) -> Iterator[str]:
    yield f"--cpus={resources.cpu_cores:g}"
    yield f"--memory={resources.memory_bytes}b"
    yield f"--memory-swap={resources.memory_bytes}b"  # memory and swap together: no swap
    yield f"--pids-limit={resources.pids}"
    if resources.shared_memory_bytes is not None:
        yield f"--shm-size={resources.shared_memory_bytes}b"
    if chosen.node:
        yield f"--cpuset-cpus={chosen.cores}"
        yield f"--cpuset-mems={chosen.node}"


def _protection(options: ContainerOptions) -> Iterator[str]:
    yield "--read-only"
    yield f"--tmpfs=/tmp:rw,nosuid,nodev,size={options.tmp_bytes},mode=1777"
    yield "--cap-drop=all"
    yield "--security-opt=no-new-privileges"
    if options.user:
        yield f"--user={options.user}"


def not_chosen_yet(resources: Resources, options: ContainerOptions) -> tuple[Chosen, str]:
    """For people who read what would be started: words instead of what is chosen then, and what they mean."""
    gpus, notes = _named_gpus(resources, options), ""
    if resources.gpu_indices and gpus is None:
        gpus = [f"{options.cdi_kind}={index}" for index in resources.gpu_indices]
    if gpus is None:
        gpus = [f"{options.cdi_kind}=FREE"] * resources.gpu_count
        kind = f"GPUs of the model {resources.gpu}" if resources.gpu else "GPUs"
        notes += f"# FREE: {kind} that no running job holds, chosen at the start\n" if gpus else ""
    node = "" if resources.numa_node is None else str(resources.numa_node)
    if node:
        notes += f"# CORES: those of NUMA node {node}\n"
    elif resources.one_numa_node:
        node = "NODE"
        notes += "# NODE, CORES: of the nearest NUMA node, chosen at the start; left out where there is but one\n"
    return Chosen(gpus=gpus, node=node, cores="CORES"), notes


def choose(
    resources: Resources, options: ContainerOptions, host: Host, cdi: Sequence[str], holders: Mapping[str, JobId]
) -> Chosen:
    """From what the machine has, and what others hold of it."""
    gpus = choose_gpus(resources, options, host, cdi, holders)
    node = node_for(resources, host, gpus)
    if node is None:
        return Chosen(gpus=gpus)
    return Chosen(gpus=gpus, node=str(node), cores=format_cores(host.node(node).cores))


def choose_gpus(
    resources: Resources, options: ContainerOptions, host: Host, cdi: Sequence[str], holders: Mapping[str, JobId]
) -> list[str]:
    """Those that the user names; else free ones of the right model; else free ones that CDI knows."""
    wanted, named = resources.gpu_count, _named_gpus(resources, options)
    if named is not None:
        return named
    if wanted == 0:
        return []
    matching = [str(gpu.index) for gpu in host.matching_gpus(resources.gpu)]
    available = [name for name in matching if name in cdi or not cdi] if host.gpus else _once_each(cdi)
    if len(available) < wanted:
        kind = f"{resources.gpu} GPUs" if resources.gpu else "GPUs"
        raise DoesNotFit(f"{wanted} {kind} are wanted, this machine has {len(available)}", _hint(options, cdi))
    candidates = [f"{options.cdi_kind}={name}" for name in available]
    if resources.gpu_indices:
        return choose_planned(resources, options.cdi_kind, candidates, holders)
    return choose_free(wanted, candidates, holders, resources.gpu)


def _named_gpus(resources: Resources, options: ContainerOptions) -> list[str] | None:
    if not options.devices:
        return None
    named = options.devices.split(",")
    if resources.gpu_count not in (0, len(named)):
        raise DoesNotFit(
            f"{resources.gpu_count} GPUs are wanted, but {len(named)} devices are named: {options.devices}"
        )
    return [f"{options.cdi_kind}={name}" for name in named]


def _once_each(cdi: Sequence[str]) -> list[str]:
    """nvidia-ctk names a GPU by its number and by its UUID, which would be the same one twice."""
    return [name for name in cdi if not name.startswith(("GPU-", "MIG-"))] or list(cdi)


def _hint(options: ContainerOptions, cdi: Sequence[str]) -> str:
    if cdi:
        return f"CDI names {', '.join(cdi)}"
    return f"no CDI file in /etc/cdi names a device {options.cdi_kind}; make it with nvidia-ctk cdi generate"


def _surroundings(job: Job, options: ContainerOptions, gpus: Sequence[str]) -> Iterator[str]:
    if options.network:
        yield f"--network={options.network}"
    for host_port, job_port in job.ports:
        yield f"--publish={LOOPBACK}:{host_port}:{job_port}"
    for mount in job.mounts:
        read_only = ",readonly" if mount.read_only else ""
        yield f"--mount=type=bind,source={mount.source},target={mount.target}{read_only}"
    yield from environment_arguments(job)
    if job.workdir:
        yield f"--workdir={job.workdir}"
    own = {OWN_LABEL: job.name} | ({GPUS_LABEL: ",".join(gpus)} if gpus else {})
    for key, value in sorted((own | dict(job.labels)).items()):
        yield f"--label={key}={value}"

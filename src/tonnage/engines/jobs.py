"""From a hardware configuration, an image and a program to a Job: what the command line and a label have in common."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tonnage.engines.base import Job, Mount, Resources
from tonnage.engines.bundle import bundle
from tonnage.engines.containerfile import FOLDER
from tonnage.engines.names import fresh_name
from tonnage.engines.recording import recorded_command, with_recorder
from tonnage.errors import NotFound, UsageError
from tonnage.hardware.catalogue import find_gpu
from tonnage.units import MIB

_MOST_CORES = 100_000
WITHOUT_IMAGE = ("local", "slurm", "ray")  # engines whose jobs are processes with the packages that are installed
PROGRAM_LABEL, DIGEST_LABEL = "tonnage.program", "tonnage.program-digest"
# A container starts with this much for all loader workers together; PyTorch passes whole batches through it.
_DEFAULT_SHARED_BYTES = 64 * MIB
# What a program is told of its configuration, if it asks; see profile/loaders.py.
LOADER_WORKERS, PINNED_MEMORY, SET_LOADERS = "TONNAGE_LOADER_WORKERS", "TONNAGE_PINNED_MEMORY", "TONNAGE_SET_LOADERS"


class Configuration(Protocol):
    """The hardware part of a label; anything with these names will do."""

    @property
    def gpu(self) -> str: ...  # "" for any
    @property
    def gpu_count(self) -> int: ...
    @property
    def cpu_cores(self) -> float: ...
    @property
    def sockets(self) -> int: ...  # 0: does not matter
    @property
    def memory_bytes(self) -> int: ...
    @property
    def loader_workers(self) -> int: ...
    @property
    def pinned_memory(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """A configuration that nobody signed: what the user asks for on the command line."""

    gpu: str = ""
    gpu_count: int = 0
    cpu_cores: float = 1.0
    sockets: int = 0
    memory_bytes: int = 4 << 30
    loader_workers: int = 0
    pinned_memory: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a job has beside its hardware."""

    environment: Mapping[str, str]
    mounts: tuple[Mount, ...] = ()
    ports: tuple[tuple[int, int], ...] = ()
    labels: Mapping[str, str]
    replicas: int = 0
    pids: int = 4096
    numa_node: int | None = None
    shared_memory_bytes: int | None = None


NOTHING_MORE = Surroundings(environment={}, labels={})


def job_of(
    configuration: Configuration,
    program: Path,
    arguments: Sequence[str] = (),
    *,
    image: str = "",
    name: str = "",
    folder: Path | None = None,
    requirements: Path | None = None,
    surroundings: Surroundings = NOTHING_MORE,
    record: bool = False,
    copy: bool = False,
) -> Job:
    """A job that runs a script: inside the image where there is one, else with this Python, in this folder.

    With `copy` it runs from a copy of what was read here also where there is no image. With `record` as well, and its steps
    are timed and written into its output.
    """
    _check(program, arguments)
    source = bundle(program, folder=folder, requirements=requirements)
    inside = bool(image)
    path = source.entry if inside or record or copy else str(program.absolute())
    command = ("python3" if inside else sys.executable, path, *arguments)
    copied: tuple[int, ...] = (1,) if copy else ()
    if record:
        command, source, copied = (
            recorded_command(command),
            with_recorder(source),
            (1, 2),
        )  # the recorder and the script
    return Job(
        name=name or fresh_name(program.stem),
        image=image,
        source=source,
        command=command,
        workdir=FOLDER if inside else str(Path.cwd()),
        copied_words=() if inside else copied,
        resources=resources_of(configuration, surroundings),
        environment=_hints(configuration) | dict(surroundings.environment),
        mounts=surroundings.mounts,
        ports=surroundings.ports,
        labels={PROGRAM_LABEL: program.name, DIGEST_LABEL: source.digest, **surroundings.labels},
        replicas=surroundings.replicas,
    )


def resources_of(configuration: Configuration, surroundings: Surroundings) -> Resources:
    """Limits from the configuration; the rest from what the user said. A job of one socket stays on one NUMA node."""
    return Resources(
        cpu_cores=configuration.cpu_cores,
        memory_bytes=configuration.memory_bytes,
        pids=surroundings.pids,
        gpu_count=configuration.gpu_count,
        gpu=configuration.gpu,
        numa_node=surroundings.numa_node,
        one_numa_node=surroundings.numa_node is None and configuration.sockets == 1,
        shared_memory_bytes=surroundings.shared_memory_bytes or _shared_bytes(configuration),
    )


def _shared_bytes(configuration: Configuration) -> int | None:
    """Half of the memory, where workers pass batches; it counts against the same limit."""
    if configuration.loader_workers == 0:
        return None
    return max(_DEFAULT_SHARED_BYTES, configuration.memory_bytes // 2)


def _hints(configuration: Configuration) -> dict[str, str]:
    """For programs that ask; the rest ignore them. One thread a core, as libraries cannot see the limit of a container."""
    hints = {"OMP_NUM_THREADS": str(max(1, int(configuration.cpu_cores)))}
    if configuration.loader_workers:
        hints[LOADER_WORKERS] = str(configuration.loader_workers)
    if configuration.pinned_memory:
        hints[PINNED_MEMORY] = "1"
    return hints


def hardware_of(cpu_cores: float, memory_bytes: int, gpu_count: int | None, gpu: str) -> Hardware:
    """A GPU that is named and not counted is one GPU."""
    if not 0.01 <= cpu_cores <= _MOST_CORES:  # neither is NaN
        raise UsageError(f"{cpu_cores} CPU cores are impossible")
    if memory_bytes < MIB:
        raise UsageError(f"{memory_bytes:,} bytes of memory are too little for any program")
    if gpu_count is not None and gpu_count < 0:
        raise UsageError(f"{gpu_count} GPUs are impossible")
    model = find_gpu(gpu).name if gpu else ""
    count = (1 if gpu else 0) if gpu_count is None else gpu_count
    return Hardware(gpu=model, gpu_count=count, cpu_cores=cpu_cores, memory_bytes=memory_bytes)


def check_script(program: Path) -> None:
    if program.suffix in (".yaml", ".onnx", ".prototxt", ".caffemodel", ".trace"):
        raise UsageError(f"{program} is no script", "name the Python program that shall run")


def check_image(engine: str, image: str) -> None:
    if engine in WITHOUT_IMAGE and image:
        raise UsageError(f"{engine} processes have no image", "leave the image out, or choose another engine")
    if engine not in WITHOUT_IMAGE and not image:
        raise UsageError(
            f"{engine} needs an image for the program", "for example: --image docker.io/pytorch/pytorch:latest"
        )


def _check(program: Path, arguments: Sequence[str]) -> None:
    if program.is_dir():
        raise UsageError(f"{program} is a folder", "name the script in it")
    if not program.is_file():
        raise NotFound(f"there is no file {program}")
    if any(not isinstance(argument, str) or "\0" in argument for argument in arguments):
        raise UsageError("an argument is no text, or has a zero byte in it")

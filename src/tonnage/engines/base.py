"""What every engine takes and does.

`plan` is pure and renders what would be submitted; only `submit`, `state` and `cancel` touch the world. `cancel` may be
repeated. Anything more is an optional capability, asked for with isinstance.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, NewType, Protocol, TypeVar, runtime_checkable

from tonnage.engines.service import ServiceTraits
from tonnage.errors import UsageError

JobId = NewType("JobId", str)


class JobState(StrEnum):
    """The same everywhere; foreign states are mapped by one table in each engine."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"

    @property
    def is_over(self) -> bool:
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a job gets, and no more."""

    cpu_cores: float = 1.0
    memory_bytes: int = 1 << 30
    pids: int = 4096
    gpu_count: int = 0
    gpu: str = ""  # as the catalogue names it; "" for any
    gpu_indices: tuple[int, ...] = ()  # the very GPUs of a machine, for engines that name devices
    shares_gpus: bool = False  # others may hold the same
    numa_node: int | None = None  # cores and memory of this one alone
    one_numa_node: bool = False  # of one alone, whichever it is: that of its GPUs, where the job fits into it
    shared_memory_bytes: int | None = None  # for data loaders' workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The program's own files, with their contents: what was checked is what runs."""

    files: Mapping[str, bytes] = field(hash=False)  # by path under the job's folder
    digest: str
    entry: str = ""  # the script's path among them
    requirements: tuple[str, ...] = ()  # lines as pip reads them


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A folder of the host inside the job."""

    source: str
    target: str
    read_only: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a plan puts a job, or one node's part of it.

    GPUs of one model in one node are alike to engines that hand them out themselves: those take the node, the model and the
    count, and `gpu_indices` is what was planned. Engines that name devices take just these.
    """

    node: str = ""  # as the cluster file calls it; "" for any
    gpu: str = ""  # as the catalogue names it; "" for any
    gpu_indices: tuple[int, ...] = ()
    share: float = 1.0  # of each GPU; less where others share it


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One command with its resources. `image` is a reference, with its digest where it is known; local jobs have none."""

    name: str
    command: tuple[str, ...]
    image: str = ""
    source: Source | None = None  # put into the image; None where the command needs nothing but the image
    resources: Resources = field(default_factory=Resources)
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    mounts: tuple[Mount, ...] = ()
    ports: tuple[tuple[int, int], ...] = ()  # of the host on loopback, of the job
    workdir: str = ""
    # Places in the command of paths among the source's files, which an engine without an image runs from a copy of its own.
    copied_words: tuple[int, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    node_type: str = ""  # of the cluster file, which a label names; "" for any
    placements: tuple[Placement, ...] = ()  # of a plan; one process a placement
    after: tuple[JobId, ...] = ()  # starts when these are over, however they ended
    requeue: bool = False  # may be started again, where it was killed or its node was lost
    replicas: int = 0  # 0: a job that ends; else a service with so many instances
    service: ServiceTraits | None = None  # of one that is watched, and follows its configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Nothing that all engines share; each has its own."""


OptionsT = TypeVar("OptionsT", bound=EngineOptions)


def own_options(options: EngineOptions, kind: type[OptionsT]) -> OptionsT:
    """The options as this engine's own; the defaults where only the empty ones were given."""
    if isinstance(options, kind):
        return options
    if type(options) is EngineOptions:
        return kind()
    raise UsageError(f"{type(options).__name__} are not {kind.__name__}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What would be submitted, as text that people can read."""

    engine: str
    name: str
    text: str  # a shell command, a Containerfile with its command, YAML
    job: Job
    options: EngineOptions
    job_id: JobId = JobId("")  # that `submit` will return, where it is not the name and known before


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """How a job is. `reason` is one sentence where there is something to say, such as that it was killed for memory."""

    state: JobState
    exit_code: int | None = None
    reason: str = ""
    started_at: float | None = None  # seconds since the epoch
    ended_at: float | None = None
    devices: tuple[str, ...] = ()  # the GPUs it got, as NODE/gpuINDEX, where the engine knows
    restarts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInventory:
    """A node as its engine knows it."""

    name: str
    gpus: Mapping[str, int] = field(hash=False)  # counts by the engine's own names of models; "" where it tells none
    shards: Mapping[str, int] = field(default_factory=dict, hash=False)  # that all GPUs of a model are divided into
    cpu_cores: int
    memory_bytes: int
    features: tuple[str, ...] = ()
    state: str = ""  # in the engine's own words
    is_up: bool = True  # takes jobs; one that is lost or closed does not
    is_lost: bool = False  # and what ran there has ended; on one that is closed it goes on


class Engine(Protocol):
    """A place where jobs run. A name is used once: submitting it again is a `UsageError`."""

    name: ClassVar[str]
    Options: ClassVar[type[EngineOptions]]

    def plan(self, job: Job, options: EngineOptions) -> Manifest: ...

    def submit(self, manifest: Manifest) -> JobId: ...

    def state(self, job_id: JobId) -> JobStatus: ...

    def cancel(self, job_id: JobId) -> None: ...


@runtime_checkable
class StreamsLogs(Protocol):
    """An engine that shows what a job prints."""

    def logs(self, job_id: JobId, *, follow: bool = False) -> Iterator[str]: ...


@runtime_checkable
class Lists(Protocol):
    """An engine that knows its jobs."""

    def jobs(self) -> Iterator[tuple[JobId, JobStatus, Mapping[str, str]]]: ...


@runtime_checkable
class Removes(Protocol):
    """An engine that keeps what a job left behind (its log, its container) until it is told to forget it."""

    def remove(self, job_id: JobId) -> None: ...


@runtime_checkable
class HoldsGpus(Protocol):
    """An engine whose jobs use GPUs of this machine, called as the Container Device Interface does: nvidia.com/gpu=0."""

    def held_gpus(self) -> Iterator[tuple[str, JobId]]: ...  # of jobs that are not over


@runtime_checkable
class Queues(Protocol):
    """An engine with a queue of its own: it keeps to `Job.after`, and jobs wait there for their GPUs."""

    queues_jobs: ClassVar[bool]


@runtime_checkable
class Restarts(Protocol):
    """An engine that keeps to `Job.requeue` by itself."""

    restarts_jobs: ClassVar[bool]


@runtime_checkable
class Reconfigures(Protocol):
    """An engine that replaces the files of a service while it runs."""

    def reconfigure(self, manifest: Manifest) -> None: ...


@runtime_checkable
class HasInventory(Protocol):
    """An engine that knows its nodes, so that a plan can be made for them, and a lost one be noticed."""

    def inventory(self, options: EngineOptions | None = None) -> tuple[NodeInventory, ...]: ...

    def models_called(self, name: str, options: EngineOptions) -> tuple[str, ...]: ...  # of the catalogue


@runtime_checkable
class SharesGpus(Protocol):
    """An engine that can give one GPU to several jobs at a time; whether also these models of the catalogue."""

    def can_share(self, gpus: Collection[str], options: EngineOptions) -> bool: ...

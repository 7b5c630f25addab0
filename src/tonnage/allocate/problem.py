"""What is to be allocated: devices, tasks, and how each task runs on each type of GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

LEVELS = ("island", "node", "rack")  # how near GPUs can be to each other, the nearest first


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One GPU of the cluster."""

    place: str  # NODE/gpuINDEX
    gpu: str  # its model: tasks run alike on all GPUs of one model
    memory_bytes: int  # that programs can use
    node: str = ""
    island: str = ""  # GPUs joined by NVLink or the like
    rack: str = ""
    price_usd_hour: float = 0.0
    idle_watts: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One task on one type of GPU, on as many GPUs as it wants."""

    step_seconds: float
    memory_bytes: int = 0  # on each GPU, the process's own context included
    memory_deviation_bytes: float = 0.0  # of what is known of it
    persistent_bytes: int = 0  # of them, what stays from step to step: context, parameters, state of the optimizer
    batch_bytes: int = 0  # copied to each GPU for every step
    copy_seconds: float = 0.0  # of a step, in which nothing else happens
    watts: float = 0.0  # of each GPU while it runs
    busy: float = 1.0  # part of the time in which its kernels keep the GPU to themselves
    bandwidth: float = 0.0  # part of the GPU's memory bandwidth that it takes
    basis: str = "given"

    @property
    def transient_bytes(self) -> int:
        """Of the memory, what a batch takes."""
        return max(self.memory_bytes - self.persistent_bytes, 0)

    def as_dict(self) -> dict[str, Any]:
        return {
            **{each.name: getattr(self, each.name) for each in fields(self)},
            "transient_bytes": self.transient_bytes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A program with a demand."""

    name: str
    steps: float
    profiles: Mapping[str, Profile] = field(hash=False)  # by GPU model; where there is none, it cannot run
    gpus: int = 1  # all of one model, all at once
    weight: float = 1.0  # how much its completion counts
    deadline_seconds: float | None = None
    release_seconds: float = 0.0
    start_seconds: float = 0.0  # before its first step, each time that it is started: loading, restoring a checkpoint
    checkpoint_seconds: float | None = None  # between two of them; None: what was done is lost with its GPU
    after: tuple[str, ...] = ()  # tasks that must be over before it starts
    pinned: tuple[str, ...] = ()  # the places that it must have
    nodes: tuple[str, ...] = ()  # it may run on these alone
    near: str = ""  # one of LEVELS: all its GPUs in one of those, if possible
    may_share: bool = True  # its GPU, where it has one alone: gangs do not share
    refused: Mapping[str, str] = field(default_factory=dict, hash=False)  # why it cannot run on some models

    def seconds_on(self, gpu: str) -> float:
        """Alone, from its start to its last step."""
        profile = self.profiles.get(gpu)
        return self.start_seconds + self.steps * profile.step_seconds if profile else float("inf")

    @property
    def least_seconds(self) -> float:
        return min((self.seconds_on(gpu) for gpu in self.profiles), default=float("inf"))


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Tasks and the GPUs that they may have. Names of tasks and places are unique."""

    devices: tuple[Device, ...]
    tasks: tuple[Task, ...]
    risk: float = 0.01  # probability that the tasks on one GPU need more than its memory
    most_together: int = 2  # tasks on one GPU at a time
    overhead: float = 0.08  # of a GPU's time, lost in changing between tasks that want more than there is

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(self._by_model)

    def devices_of(self, gpu: str) -> tuple[Device, ...]:
        return self._by_model.get(gpu, ())

    @cached_property
    def _by_model(self) -> dict[str, tuple[Device, ...]]:
        models = dict.fromkeys(device.gpu for device in self.devices)
        return {gpu: tuple(device for device in self.devices if device.gpu == gpu) for gpu in models}

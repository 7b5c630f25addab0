"""Where stages run, and how long anybody waits for anybody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tonnage.errors import Unreachable, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class StageHost:
    """One device of a distribution as a process can be started there."""

    device: str  # as the assignment calls it
    address: str = "127.0.0.1"  # where the others reach it; it listens on nothing else
    torch_device: str = "cpu"  # or cuda:0
    threads: int = 1  # that torch computes with
    # Emulates a slower node: computing takes so many times the least processor time that its thread needs, so leave it one.
    pace: float = 1.0
    prefix: tuple[str, ...] = ()  # words before the command, for processes: ip netns exec NAME
    node: str = ""  # as an engine calls it; "" for any
    gpu: str = ""  # as the catalogue names it, of jobs that get one; "" for none
    gpu_index: int = 0  # in its node

    def __post_init__(self) -> None:
        if not self.pace >= 1.0:
            raise UsageError(f"a pace of {self.pace:g} is impossible: nodes can only be made slower", "use 1 or more")
        if self.threads < 1:
            raise UsageError(f"{self.threads} threads are impossible")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Every wait has its limit."""

    start_seconds: float = 120.0  # until all workers have said hello: a queue may take longer
    setup_seconds: float = 120.0  # until they have their stage and each other
    silence_seconds: float = 10.0  # without a sign of life from a worker
    stall_seconds: float = 20.0  # in which nobody computes and nothing moves, or no byte of a message
    compute_seconds: float = 600.0  # for one run of one segment
    stop_seconds: float = 10.0  # to end by itself, before it is killed


class LostWorkers(Unreachable):
    """Workers have died or fallen silent; `devices` are theirs."""

    def __init__(self, message: str, devices: Sequence[str]) -> None:
        super().__init__(message)
        self.devices = tuple(devices)

"""Tasks that start together on the same GPUs, until the last of them ends."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.allocate.problem import Problem, Task
from tonnage.allocate.sharing import joint_speeds


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    members: tuple[Task, ...]
    gpu: str
    devices: tuple[int, ...]  # of the problem
    start_seconds: float
    end_seconds: tuple[float, ...]  # of each member

    @property
    def last_end_seconds(self) -> float:
        return max(self.end_seconds)


def make_group(problem: Problem, members: tuple[Task, ...], gpu: str, devices: tuple[int, ...], start: float) -> Group:
    return Group(
        members=members,
        gpu=gpu,
        devices=devices,
        start_seconds=start,
        end_seconds=tuple(start + seconds for seconds in run_together(problem, members, gpu)),
    )


def run_together(problem: Problem, members: tuple[Task, ...], gpu: str) -> list[float]:
    """Seconds until each ends; who is left is faster."""
    left = [task.seconds_on(gpu) for task in members]
    ends = [0.0] * len(members)
    running, now = list(range(len(members))), 0.0
    while running:
        speeds = joint_speeds(problem, [members[number].profiles[gpu] for number in running])
        step = min(left[number] / speed for number, speed in zip(running, speeds, strict=True))
        now += step
        for number, speed in zip(running, speeds, strict=True):
            left[number] -= step * speed
            ends[number] = now
        running = [number for number in running if left[number] > 1e-9 * members[number].seconds_on(gpu)]
    return ends

"""Who may be together on a GPU, and how fast each is then. Searches ask the same again and again: answers are kept."""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.allocate.feasible import usable_devices
from tonnage.allocate.problem import Device, Problem, Profile, Task
from tonnage.allocate.sharing import joint_speeds, memory_holds, pays


class Company:
    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        # By the identity of profiles, which live as long as the problem: comparing them takes longer than what is saved.
        self._speeds: dict[tuple[int, ...], list[float]] = {}
        self._welcome: dict[tuple[int, ...], bool] = {}
        self._allowed: dict[object, dict[str, list[int]]] = {}
        self._numbers = {device.place: number for number, device in enumerate(problem.devices)}

    def allowed(self, task: Task) -> dict[str, list[int]]:
        """The numbers of the devices that a task may use and fits on alone, by model."""
        key = (task.pinned, task.nodes, *map(id, task.profiles.values()))
        if key not in self._allowed:
            self._allowed[key] = {
                gpu: [self._numbers[device.place] for device in usable_devices(self.problem, task, gpu)]
                for gpu in task.profiles
            }
        return self._allowed[key]

    def speeds(self, profiles: Sequence[Profile]) -> list[float]:
        """Of each beside the others, as a part of its speed alone."""
        key = tuple(map(id, profiles))
        if key not in self._speeds:
            self._speeds[key] = joint_speeds(self.problem, profiles)
        return self._speeds[key]

    def takes(self, device: Device, present: Sequence[Task], new: Task) -> bool:
        """The new task may join those that are there."""
        if not present:
            return True
        if len(present) >= self.problem.most_together or not new.may_share:
            return False
        if not all(each.may_share for each in present):
            return False
        return self.welcome(device, [each.profiles[device.gpu] for each in (*present, new)])

    def welcome(self, device: Device, profiles: Sequence[Profile]) -> bool:
        """Together they get more done than one after the other, and the memory holds them."""
        key = (device.memory_bytes, *map(id, profiles))
        if key not in self._welcome:
            fit = memory_holds(device, profiles, self.problem.risk)
            self._welcome[key] = fit and pays(self.problem, profiles)
        return self._welcome[key]

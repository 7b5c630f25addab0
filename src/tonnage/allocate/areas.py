"""How much of a GPU's time a task takes at least, whoever shares the GPU with it.

Every second of a task's work alone is charged a part of a GPU's second, such that those who are together are never charged
more than the time that passes. All that is charged fits into the GPUs' time, then, in every plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement

import numpy as np

from tonnage.allocate.company import Company
from tonnage.allocate.kinds import Kinds, kinds_of
from tonnage.allocate.linear import LinearRows, solve_rows
from tonnage.allocate.problem import Device, Problem, Task
from tonnage.allocate.speeds import Floats, Ints

_LEAST_WEIGHT = 1e-6  # of the largest: solvers need numbers of like size
_MOST_KINDS = 150  # for a program over all pairs of them


class Areas:
    def __init__(self, problem: Problem, tasks: Sequence[Task]) -> None:
        self.problem, self.tasks, self._company = problem, tuple(tasks), Company(problem)
        kinds = kinds_of(tasks)
        self._kind = {task.name: int(number) for task, number in zip(tasks, kinds.numbers, strict=True)}
        work = np.array([[_finite(task.seconds_on(gpu)) for gpu in problem.models] for task in tasks])
        work = work.reshape(len(tasks), len(problem.models))
        self._parts = {
            gpu: self._parts_on(gpu, kinds, _sums(kinds, work[:, number])) for number, gpu in enumerate(problem.models)
        }

    def seconds(self, task: Task, gpu: str) -> float:
        """Of each of its GPUs, if they are of this model."""
        return task.seconds_on(gpu) * float(self._parts[gpu][self._kind[task.name]])

    def least_seconds(self, task: Task) -> float:
        return min(self.seconds(task, gpu) for gpu in task.profiles)

    def _parts_on(self, gpu: str, kinds: Kinds, work: Floats) -> Floats:
        """Of each kind. The more of the work is charged, the better the bound."""
        largest = max(self.problem.devices_of(gpu), key=lambda device: device.memory_bytes)
        able = [number for number, task in enumerate(kinds.examples) if self._can_share(task, gpu)]
        parts = np.ones(len(kinds.examples))
        if not able:
            return parts
        if self.problem.most_together == 2 and len(able) <= _MOST_KINDS:
            parts[able] = self._by_pairs(
                largest, [kinds.examples[number] for number in able], kinds.sizes[able], work[able]
            )
        else:
            parts[able] = self._by_sums(gpu, [kinds.examples[number] for number in able], work[able])
        return parts

    def _can_share(self, task: Task, gpu: str) -> bool:
        return task.may_share and task.gpus == 1 and gpu in task.profiles and self.problem.most_together > 1

    def _by_pairs(self, device: Device, tasks: Sequence[Task], sizes: Ints, work: Floats) -> Floats:
        """The most that can be charged, pair by pair."""
        rows = LinearRows()
        limits: list[float] = []
        for one, other in combinations_with_replacement(range(len(tasks)), 2):
            if one == other and sizes[one] < 2:
                continue
            both = [tasks[one].profiles[device.gpu], tasks[other].profiles[device.gpu]]
            if self._company.welcome(device, both):
                speeds = np.array(self._company.speeds(both))
                rows.add(np.full(2, len(limits)), np.array([one, other]), speeds)
                limits.append(1.0)
        count = len(tasks)
        rows.add(len(limits) + np.arange(count), np.arange(count), np.ones(count))
        answer = solve_rows(-np.maximum(work / work.max(), _LEAST_WEIGHT), rows, np.append(limits, np.ones(count)))
        return np.clip(answer.x, 0.0, 1.0)

    def _by_sums(self, gpu: str, tasks: Sequence[Task], work: Floats) -> Floats:
        """Those who are together keep the GPU busy for all of its time at most; nor are they more than may be."""
        busy = np.array([max(task.profiles[gpu].busy, task.profiles[gpu].bandwidth) for task in tasks])
        count = np.full(len(tasks), 1.0 / self.problem.most_together)
        return busy.clip(max=1.0) if busy @ work > count @ work else count


def _sums(kinds: Kinds, values: Floats) -> Floats:
    return np.asarray(np.bincount(kinds.numbers, values, len(kinds.examples)), dtype=float)


def _finite(seconds: float) -> float:
    return seconds if np.isfinite(seconds) else 0.0

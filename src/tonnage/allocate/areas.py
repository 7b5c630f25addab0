"""How much of a GPU's time a task takes at least, whoever shares the GPU with it.

Every second of a task's work alone is charged a part of a GPU's second, such that those who are together are never charged
more than the time that passes. All that is charged fits into the GPUs' time, then, in every plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np

from tonnage.allocate.company import Company
from tonnage.allocate.kinds import Kinds, kinds_of
from tonnage.allocate.linear import LinearRows, solve_rows
from tonnage.allocate.problem import Problem, Task
from tonnage.allocate.speeds import Floats, Ints

_LEAST_WEIGHT = 1e-6  # of the largest: solvers need numbers of like size
_MOST_IN_PROGRAM = 150  # kinds, with all their pairs
_MOST_PAIRED = 300


class Areas:
    def __init__(self, problem: Problem, tasks: Sequence[Task]) -> None:
        self.problem, self._company = problem, Company(problem)
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
        able = np.array([n for n, task in enumerate(kinds.examples) if self._can_share(task, gpu)], dtype=np.int64)
        parts = np.ones(len(kinds.examples))
        if len(able) == 0:
            return parts
        tasks = [kinds.examples[number] for number in able]
        parts[able] = self._by_sums(gpu, tasks, work[able])
        if self.problem.most_together > 2 or len(able) > _MOST_PAIRED:
            return parts
        pairs = self._pairs(gpu, tasks, kinds.sizes[able])
        if len(able) <= _MOST_IN_PROGRAM:
            parts[able] = pairs.most_charged(parts[able], work[able])
        else:
            parts[able] = pairs.raised(parts[able], np.argsort(-work[able]))
        return parts

    def _can_share(self, task: Task, gpu: str) -> bool:
        return task.may_share and task.gpus == 1 and gpu in task.profiles and self.problem.most_together > 1

    def _pairs(self, gpu: str, tasks: Sequence[Task], sizes: Ints) -> _Pairs:
        """Those who may be together somewhere."""
        largest = max(self.problem.devices_of(gpu), key=lambda device: device.memory_bytes)
        found: list[tuple[int, int, float, float]] = []
        for one, other in combinations_with_replacement(range(len(tasks)), 2):
            both = [tasks[one].profiles[gpu], tasks[other].profiles[gpu]]
            if (one != other or sizes[one] > 1) and self._company.welcome(largest, both):
                first, second = self._company.speeds(both)
                found.append((one, other, first, second))
        table = np.array(found, dtype=float).reshape(-1, 4)
        return _Pairs(len(tasks), table[:, :2].astype(np.int64), table[:, 2:])

    def _by_sums(self, gpu: str, tasks: Sequence[Task], work: Floats) -> Floats:
        """Those who are together keep the GPU busy for all of its time at most; nor are they more than may be."""
        busy = np.array([max(task.profiles[gpu].busy, task.profiles[gpu].bandwidth) for task in tasks])
        count = np.full(len(tasks), 1.0 / self.problem.most_together)
        return busy.clip(max=1.0) if busy @ work > count @ work else count


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """Of so many tasks: who, and how fast each is beside the other."""

    tasks: int
    members: Ints  # pair, two
    speeds: Floats  # pair, two

    def most_charged(self, parts: Floats, work: Floats) -> Floats:
        """The most that can be charged in all, and nobody less than these parts: what is cheap somewhere bounds little."""
        rows, count, everyone = LinearRows(), len(self.members), np.arange(self.tasks)
        rows.add(np.repeat(np.arange(count), 2), self.members.ravel(), self.speeds.ravel())
        rows.add(count + everyone, everyone, np.ones(self.tasks))
        room = np.append(1.0 - (self.speeds * parts[self.members]).sum(axis=1), 1.0 - parts)
        weight = np.maximum(work / work.max(), _LEAST_WEIGHT)
        more = solve_rows(-weight, rows, room.clip(0.0)).x
        return np.clip(parts + more, 0.0, 1.0)

    def raised(self, parts: Floats, order: Ints) -> Floats:
        """One after the other as far as its partners allow."""
        partners: list[list[tuple[int, float, float]]] = [[] for _ in range(self.tasks)]
        for (one, other), (speed, beside) in zip(self.members.tolist(), self.speeds.tolist(), strict=True):
            partners[one].append((other, speed, beside))
            partners[other].append((one, beside, speed))
        parts = parts.copy()
        for task in order.tolist():
            room = [
                (1.0 - parts[other] * beside) / speed if other != task else 1.0 / (speed + beside)
                for other, speed, beside in partners[task]
            ]
            parts[task] = min([1.0, *room])
        return parts


def _sums(kinds: Kinds, values: Floats) -> Floats:
    return np.asarray(np.bincount(kinds.numbers, values, len(kinds.examples)), dtype=float)


def _finite(seconds: float) -> float:
    return seconds if np.isfinite(seconds) else 0.0

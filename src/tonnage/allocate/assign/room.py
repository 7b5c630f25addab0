"""Exact room: what a search leaves on GPUs whose memory is too small goes elsewhere, or nowhere."""

from __future__ import annotations

import numpy as np

from tonnage.allocate.assign.problem import Instance
from tonnage.allocate.speeds import Floats, Ints


class Room:
    """Bytes in use and seconds of every GPU, as whole numbers and as they are: no shares, no rounding."""

    def __init__(self, instance: Instance, gpus: Ints, deadline: float = np.inf) -> None:
        self.instance, self.gpus, self.deadline = instance, gpus, deadline
        self.type_of = np.repeat(np.arange(len(instance.counts)), instance.counts)
        self.capacity = instance.capacity_bytes[self.type_of]
        self.possible = instance.possible
        placed = np.flatnonzero(gpus >= 0)
        types = self.type_of[gpus[placed]]
        self.loads = np.zeros(len(self.type_of))
        np.add.at(self.loads, gpus[placed], instance.seconds[placed, types])
        self.used = np.zeros(len(self.type_of), dtype=np.int64)
        if instance.resident:
            np.add.at(self.used, gpus[placed], instance.memory_bytes[placed, types])

    def take_out(self, task: int) -> None:
        self._change(task, -1)
        self.gpus[task] = -1

    def put(self, task: int) -> bool:
        """On the GPU that has room and is done with it first. False: there is none, or none before the deadline."""
        kinds = self.type_of
        ends = self.loads + np.where(self.possible[task], self.instance.seconds[task], np.inf)[kinds]
        if self.instance.resident:
            ends[self.used + self.instance.memory_bytes[task][kinds] > self.capacity] = np.inf
        best = int(ends.argmin())
        if not np.isfinite(ends[best]) or ends[best] > self.deadline:
            return False
        self.gpus[task] = best
        self._change(task, 1)
        return True

    def _change(self, task: int, sign: int) -> None:
        gpu = self.gpus[task]
        number = self.type_of[gpu]
        self.loads[gpu] += sign * self.instance.seconds[task, number]
        if self.instance.resident:
            self.used[gpu] += sign * self.instance.memory_bytes[task, number]

    def has_too_much(self, gpu: int) -> bool:
        return bool(self.used[gpu] > self.capacity[gpu] or self.loads[gpu] > self.deadline)

    def to_evict(self, gpu: int) -> int:
        """The smallest task that would cure the GPU alone; if there is none, the largest."""
        tasks, number = np.flatnonzero(self.gpus == gpu), self.type_of[gpu]
        size: Floats = self.instance.memory_bytes[tasks, number].astype(float)
        excess = float(self.used[gpu] - self.capacity[gpu])
        if excess <= 0:
            size, excess = self.instance.seconds[tasks, number], self.loads[gpu] - self.deadline
        cures = size >= excess
        return int(tasks[np.where(cures, size, 2.0 * size.max() - size).argmin()])


def make_room(instance: Instance, gpus: Ints, deadline: float = np.inf) -> Ints:
    """Changes `gpus` until no GPU has too much; the tasks for which none has room, now on -1."""
    room = Room(instance, gpus, deadline)
    evicted = []
    for gpu in range(len(room.type_of)):
        while room.has_too_much(gpu):
            evicted.append(room.to_evict(gpu))
            room.take_out(evicted[-1])
    return np.array([task for task in evicted if not room.put(task)], dtype=np.int64)

"""Exact room: what a search leaves on GPUs whose memory is too small goes elsewhere, or nowhere."""

from __future__ import annotations

import numpy as np

from tonnage.allocate.assign.problem import Instance
from tonnage.allocate.speeds import Ints


class Room:
    """Bytes in use and seconds of every GPU, as whole numbers and as they are: no shares, no rounding."""

    def __init__(self, instance: Instance, gpus: Ints) -> None:
        self.instance, self.gpus = instance, gpus
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
        """On the GPU that has room and is done with it first. False: there is none."""
        kinds = self.type_of
        ends = self.loads + np.where(self.possible[task], self.instance.seconds[task], np.inf)[kinds]
        if self.instance.resident:
            ends[self.used + self.instance.memory_bytes[task][kinds] > self.capacity] = np.inf
        best = int(ends.argmin())
        if not np.isfinite(ends[best]):
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

    def to_evict(self, gpu: int) -> int:
        """The smallest task that would cure the GPU alone; if there is none, the largest."""
        tasks = np.flatnonzero(self.gpus == gpu)
        size = self.instance.memory_bytes[tasks, self.type_of[gpu]]
        cures = size >= self.used[gpu] - self.capacity[gpu]
        return int(tasks[np.where(cures, size, size.max() + (size.max() - size) + 1).argmin()])


def make_room(instance: Instance, gpus: Ints) -> Ints:
    """Changes `gpus` until no memory is overfull; the tasks for which no GPU has room, now on -1."""
    room = Room(instance, gpus)
    evicted = []
    for gpu in np.flatnonzero(room.used > room.capacity).tolist():
        while room.used[gpu] > room.capacity[gpu]:
            evicted.append(room.to_evict(gpu))
            room.take_out(evicted[-1])
    homeless = [task for task in evicted if not room.put(task)]
    return np.array(homeless, dtype=np.int64)

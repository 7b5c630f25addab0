"""The tasks on their GPUs while a solver moves them: loads and memory in use are kept up to date."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tonnage.allocate.assign.problem import Bools, Instance
from tonnage.allocate.speeds import Floats, Ints

_NEVER = 1e3  # times the target: what an impossible task would take; finite, so that sums stay numbers
FULL = 1.0 + 1e-12  # a GPU's memory: the errors of sums are smaller, one byte is more


@dataclass(slots=True, kw_only=True, eq=False)
class Board:
    """GPUs of all types are numbered through. Seconds are shares of a target, bytes shares of a GPU's memory."""

    seconds: Floats  # task, type
    memory: Floats  # task, type; all zero if tasks are not resident
    first: Ints  # the first GPU of each type
    type_of: Ints  # of each GPU
    gpus: Ints  # of each task
    loads: Floats  # of each GPU
    used: Floats  # memory of each GPU

    @property
    def size(self) -> int:
        return len(self.type_of)

    @property
    def possible(self) -> Bools:
        return np.asarray(self.seconds < _NEVER)

    def refresh(self) -> None:
        """Sums anew, so that errors of rounding do not add up."""
        where = np.arange(len(self.gpus)), self.type_of[self.gpus]
        self.loads = np.bincount(self.gpus, self.seconds[where], self.size).astype(float)
        self.used = np.bincount(self.gpus, self.memory[where], self.size).astype(float)

    def type_members(self, number: int) -> slice:
        return slice(int(self.first[number]), int(self.first[number + 1]))


def board_of(instance: Instance, target_seconds: float, gpus: Ints) -> Board:
    possible = instance.possible
    memory = (
        instance.memory_bytes / np.maximum(instance.capacity_bytes, 1)
        if instance.resident
        else np.zeros(possible.shape)
    )
    first = np.concatenate([[0], np.cumsum(instance.counts)])
    board = Board(
        seconds=np.where(possible, np.where(possible, instance.seconds, 0.0) / target_seconds, _NEVER),
        memory=np.where(possible, memory, 0.0),
        first=first,
        type_of=np.repeat(np.arange(len(instance.counts)), instance.counts),
        gpus=gpus,
        loads=np.empty(0),
        used=np.empty(0),
    )
    board.refresh()
    return board

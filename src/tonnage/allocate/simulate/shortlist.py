"""Of a queue too long to look through at each decision: those who may get GPUs soon."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tonnage.allocate.queue import Queue
from tonnage.allocate.speeds import Bools, Floats, Ints

_SHORT = 1000  # jobs that are always looked at, all of them
_LOOKS = 8  # decisions between two looks through all of a long queue
_TIMES = 4  # the GPUs that there are: twice for what runs two at a time, twice more for what ends until the next look


class Shortlist:
    """The jobs that decisions look at; in a short queue all."""

    def __init__(self) -> None:
        self.jobs: Ints = np.empty(0, dtype=np.int64)
        self._others: Ints = np.empty(0, dtype=np.int64)  # none of them runs
        self._decisions_left = self._fewest = 0  # until all are looked through again

    def add(self, jobs: Ints) -> None:
        self.jobs = np.concatenate([self.jobs, jobs])

    def update(self, ended: Bools, choose: Callable[[Ints], Ints]) -> None:
        """Forget who has ended, and look through all again if it is time; `choose` numbers the most valuable."""
        self.jobs = self.jobs[~ended[self.jobs]]
        count = len(self.jobs) + len(self._others)
        self._decisions_left -= 1
        if count > _SHORT and self._decisions_left > 0 and len(self.jobs) > self._fewest:
            return
        everybody = np.sort(np.concatenate([self.jobs, self._others])) if len(self._others) else self.jobs
        chosen = choose(everybody) if count > _SHORT else np.arange(count)
        self.jobs, self._others = everybody[chosen], np.delete(everybody, chosen)
        self._fewest, self._decisions_left = len(self.jobs) // 2, _LOOKS if count > _SHORT else 0


def most_valuable_tasks(queue: Queue, value: Floats) -> Ints:
    """All that run, and on each type those worth most by GPU, up to some times the GPUs of all types.

    The most valuable placement has hardly any other: who else had a place would stand behind more on that type than can run
    anywhere.
    """
    density = queue.speeds * (value / queue.gpus)[:, None]
    chosen = queue.places >= 0
    for kind in range(len(queue.capacity)):
        order = np.argsort(-density[:, kind], kind="stable")
        taken = np.cumsum(queue.gpus[order])
        chosen[order[taken <= _TIMES * queue.capacity.sum()]] = True
    return np.flatnonzero(chosen)

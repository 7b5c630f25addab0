"""What runs where at one moment of a simulation, and how it goes on."""

from __future__ import annotations

import numpy as np

from tonnage.allocate.queue import Columns
from tonnage.allocate.simulate.jobs import Jobs
from tonnage.allocate.speeds import Floats, Ints, SpeedTable

_DONE = 1e-9  # of a job's steps


class Machines:
    """GPUs by type, the jobs on them, and the steps that these have made."""

    def __init__(self, table: SpeedTable, capacity: Ints, jobs: Jobs, restart_seconds: float) -> None:
        self.table, self.capacity, self.jobs, self.restart_seconds = table, capacity, jobs, restart_seconds
        self.gpus = np.array([each.gpus for each in table.classes])[jobs.classes]
        self.made = np.zeros(jobs.size)
        self.place = np.full(jobs.size, -1)  # type of GPU
        self.partner = np.full(jobs.size, -1)  # on the same GPUs
        self.lost = np.zeros(jobs.size)  # seconds of restarting that are still to come
        self.running: Ints = np.empty(0, dtype=np.int64)
        self.speeds: Floats = np.empty(0)
        self.preemptions = 0
        self.busy_gpu_seconds = np.zeros(len(capacity))
        self._used: Floats = np.zeros(len(capacity))

    def free(self) -> Ints:
        return np.asarray(self.capacity - self._used, dtype=np.int64)

    def switch(self, active: Ints, columns: Columns) -> None:
        """From now on these columns run, whose tasks are numbered among `active`."""
        place, partner = np.full(self.jobs.size, -1), np.full(self.jobs.size, -1)
        firsts, second = active[columns.firsts], columns.seconds >= 0
        place[firsts] = columns.types
        both, seconds = firsts[second], active[columns.seconds[second]]
        place[seconds] = columns.types[second]
        partner[both], partner[seconds] = seconds, both
        stopped = self.running[place[self.running] != self.place[self.running]]
        self.preemptions += len(stopped)
        began = active[(place[active] >= 0) & (place[active] != self.place[active])]
        self._start(began)
        self.place, self.partner = place, partner
        self._settle(active[place[active] >= 0])

    def add(self, job: int, kind: int) -> None:
        """A job starts on free GPUs beside what runs."""
        self._start(np.array([job]))
        self.place[job] = kind
        self._settle(np.append(self.running, job))

    def next_end_seconds(self) -> float:
        if not len(self.running):
            return np.inf
        left = self.jobs.steps[self.running] - self.made[self.running]
        return float((self.lost[self.running] + left / self.speeds).min())

    def advance(self, seconds: float) -> Ints:
        """The jobs that have ended by then."""
        running = self.running
        waiting = np.minimum(self.lost[running], seconds)
        self.lost[running] -= waiting
        self.made[running] += self.speeds * (seconds - waiting)
        self.busy_gpu_seconds += self._used * seconds
        ended = running[self.made[running] >= self.jobs.steps[running] * (1 - _DONE)]
        if len(ended):
            self._end(ended)
        return ended

    def _start(self, jobs: Ints) -> None:
        """Only what has run before loses time: its state is loaded again."""
        self.lost[jobs] = np.where(self.made[jobs] > 0, self.restart_seconds, 0.0)

    def _end(self, jobs: Ints) -> None:
        """Who shared the GPUs of these goes on alone."""
        self.place[jobs] = -1
        partners = self.partner[jobs]
        self.partner[partners[partners >= 0]] = -1
        self.partner[jobs] = -1
        self._settle(self.running[self.place[self.running] >= 0])

    def _settle(self, running: Ints) -> None:
        self.running = running
        place, partner, classes = self.place[running], self.partner[running], self.jobs.classes[running]
        together = self.table.paired[place, classes, self.jobs.classes[partner]]
        self.speeds = np.where(partner >= 0, together, self.table.alone[classes, place])
        share = np.where(partner >= 0, 0.5, 1.0)
        used = np.bincount(place, self.gpus[running] * share, len(self.capacity))
        self._used = used.astype(float)

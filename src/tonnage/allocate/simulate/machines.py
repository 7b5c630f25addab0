"""What runs where at one moment of a simulation, and how it goes on."""

from __future__ import annotations

import numpy as np

from tonnage.allocate.queue import Columns
from tonnage.allocate.simulate.jobs import Jobs
from tonnage.allocate.speeds import Floats, Ints, SpeedTable

_DONE = 1e-9  # of a job's steps
_NONE: Ints = np.empty(0, dtype=np.int64)


class Machines:
    """GPUs by type, the jobs on them, and the steps that these have made.

    A seat is a set of GPUs that a job holds, or two jobs hold together. Who gets another seat was moved: it stops, and its
    state is loaded again, even if the GPUs are of the same type.
    """

    def __init__(self, table: SpeedTable, capacity: Ints, jobs: Jobs, restart_seconds: float) -> None:
        self.table, self.capacity, self.jobs, self.restart_seconds = table, capacity, jobs, restart_seconds
        self.gpus = table.gpus[jobs.classes]
        self.made = np.zeros(jobs.size)
        self.place = np.full(jobs.size, -1)  # type of GPU
        self.partner = np.full(jobs.size, -1)  # on the same GPUs
        self.seat = np.full(jobs.size, -1)
        self.lost = np.zeros(jobs.size)  # seconds of restarting that are still to come
        self.running: Ints = _NONE
        self.speeds: Floats = np.empty(0)
        self.preemptions = 0
        self.busy_gpu_seconds = np.zeros(len(capacity))
        self._used: Floats = np.zeros(len(capacity))
        self._seats = 0

    def free(self) -> Ints:
        return np.asarray(self.capacity - np.rint(self._used), dtype=np.int64)

    def all_at_best(self) -> bool:
        return bool((self.speeds >= self.table.best[self.jobs.classes[self.running]]).all())

    def switch(self, active: Ints, columns: Columns) -> None:
        """From now on these columns run, whose tasks are numbered among `active`."""
        second = columns.seconds >= 0
        firsts, seconds = active[columns.firsts], active[columns.seconds[second]]
        seats = self._seats_for(firsts, np.where(second, active[columns.seconds], -1), columns.types)
        running = np.concatenate([firsts, seconds])
        old, new = self.running, np.concatenate([seats, seats[second]])
        moved = running[self.seat[running] != new]
        before = self.seat[old]
        self.seat[old], self.place[old], self.partner[old] = -1, -1, -1
        self.seat[running], self.place[running] = new, np.concatenate([columns.types, columns.types[second]])
        self.partner[firsts[second]], self.partner[seconds] = seconds, firsts[second]
        self.preemptions += int((self.seat[old] != before).sum())
        self._start(moved)
        self._settle(np.sort(running))

    def add(self, jobs: Ints, types: Ints) -> None:
        """Jobs start on free GPUs beside what runs."""
        self._start(jobs)
        self.place[jobs], self.seat[jobs] = types, self._fresh(len(jobs))
        self._settle(np.concatenate([self.running, jobs]))

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

    def _seats_for(self, firsts: Ints, seconds: Ints, types: Ints) -> Ints:
        """A pair keeps the seat of one of its two, if that is of the same type and nobody else keeps it."""
        seats = np.full(len(firsts), -1)
        for jobs in (firsts, seconds):
            old = np.where((jobs >= 0) & (self.place[jobs] == types) & (seats < 0), self.seat[jobs], -1)
            old[np.isin(old, seats)] = -1
            claimed, who = np.unique(old, return_index=True)
            seats[who[claimed >= 0]] = claimed[claimed >= 0]
        without = np.flatnonzero(seats < 0)
        seats[without] = self._fresh(len(without))
        return seats

    def _fresh(self, count: int) -> Ints:
        self._seats += count
        return np.arange(self._seats - count, self._seats)

    def _start(self, jobs: Ints) -> None:
        """Only what has run before loses time."""
        self.lost[jobs] = np.where(self.made[jobs] > 0, self.restart_seconds, 0.0)

    def _end(self, jobs: Ints) -> None:
        """Who shared the GPUs of these goes on alone."""
        partners = self.partner[jobs]
        self.partner[partners[partners >= 0]] = -1
        self.place[jobs], self.partner[jobs], self.seat[jobs] = -1, -1, -1
        self._settle(self.running[self.place[self.running] >= 0])

    def _settle(self, running: Ints) -> None:
        self.running = running
        place, partner, classes = self.place[running], self.partner[running], self.jobs.classes[running]
        together = self.table.paired[place, classes, self.jobs.classes[partner]]
        self.speeds = np.where(partner >= 0, together, self.table.alone[classes, place])
        share = np.where(partner >= 0, 0.5, 1.0)
        self._used = np.bincount(place, self.gpus[running] * share, len(self.capacity)).astype(float)

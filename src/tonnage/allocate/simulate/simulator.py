"""Plays a trace of jobs from event to event: arrivals, ends, and the ends of slices and periods."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tonnage.allocate.queue import Columns, Queue
from tonnage.allocate.simulate.jobs import Belief, Jobs
from tonnage.allocate.simulate.machines import Machines
from tonnage.allocate.simulate.policies import Policy
from tonnage.allocate.slices import cut
from tonnage.allocate.speeds import Floats, Ints, SpeedTable

_AMORTISED_SECONDS = 1800.0  # a task that moves is believed to stay so long
_MANY_JOBS = 2000  # beyond that, decisions are made only so often; in between, free GPUs are filled
_BETWEEN_SECONDS = 600.0
_MOST_TASKS = 600  # that one decision looks at


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    completed_seconds: Floats  # when each job was done
    contention: Floats  # mean number of GPUs wanted, beside those that there are, during each job's life
    preemptions: int
    decisions: int
    solver_cpu_seconds: float
    busy_gpu_seconds: Floats  # of each type


class Simulator:
    def __init__(
        self,
        table: SpeedTable,
        capacity: Ints,
        jobs: Jobs,
        policy: Policy,
        belief: Belief,
        restart_seconds: float = 0.0,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.table, self.capacity, self.jobs, self.policy, self.belief = table, capacity, jobs, policy, belief
        self.restart_seconds, self.clock = restart_seconds, clock
        self.machines = Machines(table, capacity, jobs, restart_seconds)
        self.now = self.last_arrival = 0.0
        self.completed = np.full(jobs.size, np.nan)
        self.decisions = 0
        self.solver_seconds = 0.0
        self._arrived = 0
        self._active: Ints = np.empty(0, dtype=np.int64)
        self._slices: deque[tuple[float, Ints, Columns]] = deque()
        self._decided = -np.inf
        self._wanted = self._wanted_seconds = 0.0
        self._wanted_at_arrival = np.zeros(jobs.size)
        self._contention = np.zeros(jobs.size)

    def run(self, progress: Callable[[int], None] = lambda done: None) -> Outcome:
        replan = True
        while self._arrived < self.jobs.size or len(self._active):
            replan = self._receive() or replan
            if not len(self._active):
                self._pass(float(self.jobs.arrival_seconds[self._arrived]) - self.now)
                continue
            if not self._slices or (replan and self._may_decide()):
                self._decide()
            elif replan:
                self._fill()
            replan = self._play()
            progress(self._arrived - len(self._active))
        machines = self.machines
        return Outcome(
            completed_seconds=self.completed, contention=self._contention, preemptions=machines.preemptions,
            decisions=self.decisions, solver_cpu_seconds=self.solver_seconds, busy_gpu_seconds=machines.busy_gpu_seconds,
        )  # fmt: skip

    def _receive(self) -> bool:
        until = int(np.searchsorted(self.jobs.arrival_seconds, self.now, side="right"))
        if until == self._arrived:
            return False
        new = np.arange(self._arrived, until)
        self._active, self._arrived, self.last_arrival = np.concatenate([self._active, new]), until, self.now
        self._wanted_at_arrival[new] = self._wanted_seconds
        self._wanted += self.machines.gpus[new].sum()
        return True

    def _may_decide(self) -> bool:
        return self.jobs.size <= _MANY_JOBS or self.now >= self._decided + _BETWEEN_SECONDS

    def _queue(self, which: Ints) -> Queue:
        machines = self.machines
        efficiency = np.ones((len(which), len(self.capacity)))
        if self.restart_seconds:
            moved = machines.place[which, None] != np.arange(len(self.capacity))
            moved &= machines.made[which, None] > 0
            efficiency[moved] = max(0.1, 1.0 - self.restart_seconds / _AMORTISED_SECONDS)
        return Queue(
            table=self.table, capacity=self.capacity, classes=self.jobs.classes[which],
            left_steps=self.belief(which, machines.made[which]), weights=self.jobs.weights[which], efficiency=efficiency,
        )  # fmt: skip

    def _decide(self) -> None:
        began = self.clock()
        front = self._front()
        decision = self.policy.decide(self._queue(front), self.now - self.last_arrival)
        slices = cut(decision.shares, self.capacity, len(front), decision.least_part(self.restart_seconds))
        end = self.now
        self._slices.clear()
        for piece in slices:
            end += piece.part * decision.seconds
            self._slices.append((end, front, decision.shares.columns.chosen(piece.columns)))
        self._replan = decision.replan
        self._decided = self.now
        self.decisions += 1
        self.solver_seconds += self.clock() - began
        self._begin_slice()

    def _front(self) -> Ints:
        """Of a long queue, the tasks that are worth most by GPU."""
        if len(self._active) <= _MOST_TASKS:
            return self._active
        queue = self._queue(self._active)
        density = self.policy.value(queue) * queue.best_speeds / queue.gpus
        return np.sort(self._active[np.argsort(-density, kind="stable")[:_MOST_TASKS]])

    def _begin_slice(self) -> None:
        _, front, columns = self._slices[0]
        alive = np.isnan(self.completed[front])
        ended_pair = (columns.seconds >= 0) & ~alive[columns.seconds]
        firsts = np.where(alive[columns.firsts], columns.firsts, columns.seconds)
        seconds = np.where(ended_pair | ~alive[columns.firsts], -1, columns.seconds)
        kept = (firsts >= 0) & alive[firsts]
        self.machines.switch(
            front,
            Columns(
                types=columns.types, firsts=firsts, seconds=seconds, gpus=columns.gpus,
                first_speeds=columns.first_speeds, second_speeds=columns.second_speeds,
            ).chosen(np.flatnonzero(kept)),
        )  # fmt: skip

    def _fill(self) -> None:
        """Free GPUs go to those who wait, the most valuable first, until the next decision."""
        free = self.machines.free()
        waiting = self._active[self.machines.place[self._active] < 0]
        if not free.any() or not len(waiting):
            return
        queue = self._queue(waiting)
        worth = queue.speeds * (self.policy.value(queue) / queue.gpus)[:, None]
        for number in np.argsort(-worth.max(axis=1), kind="stable"):
            room = np.where((free >= queue.gpus[number]) & (worth[number] > 0), worth[number], 0.0)
            if room.any():
                kind = int(room.argmax())
                free[kind] -= queue.gpus[number]
                self.machines.add(int(waiting[number]), kind)
            if not free.any():
                return

    def _play(self) -> bool:
        """To the next event; whether to plan anew."""
        arrival = self.jobs.arrival_seconds[self._arrived] if self._arrived < self.jobs.size else np.inf
        end = self._slices[0][0]
        length = min(self.machines.next_end_seconds(), max(end - self.now, 0.0), arrival - self.now)
        ended = self._pass(length)
        if self.now >= end - 1e-6:
            self._slices.popleft()
            if self._slices:
                self._begin_slice()
        return bool(len(ended)) and self._replan

    def _pass(self, seconds: float) -> Ints:
        ended = self.machines.advance(seconds)
        self.now += seconds
        self._wanted_seconds += self._wanted * seconds
        if len(ended):
            self.completed[ended] = self.now
            life = np.maximum(self.now - self.jobs.arrival_seconds[ended], 1e-9)
            self._contention[ended] = (
                (self._wanted_seconds - self._wanted_at_arrival[ended]) / life / self.capacity.sum()
            )
            self._wanted -= self.machines.gpus[ended].sum()
            self._active = self._active[np.isnan(self.completed[self._active])]
        return ended

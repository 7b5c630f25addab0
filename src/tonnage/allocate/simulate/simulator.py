"""Plays a trace of jobs from event to event: arrivals, ends, and the ends of slices and periods."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tonnage.allocate.queue import Columns, Queue, numbers_among
from tonnage.allocate.simulate.jobs import Belief, Jobs
from tonnage.allocate.simulate.machines import Machines
from tonnage.allocate.simulate.policies import Policy
from tonnage.allocate.simulate.shortlist import Shortlist, most_valuable_tasks
from tonnage.allocate.slices import cut
from tonnage.allocate.speeds import Floats, Ints, SpeedTable

_AMORTISED_SECONDS = 1800.0  # a task that moves is believed to stay so long
_LEAST_EFFICIENCY = 0.1
_LEAST_RESTARTS = 2.0  # between two decisions, so that all that runs gets on
_SPARES = 512  # tasks that are looked at when GPUs become free between two decisions
_SAME_SECONDS = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    completed_seconds: Floats  # when each job was done
    contention: Floats  # mean number of GPUs wanted, beside those that there are, during each job's life
    preemptions: int
    decisions: int
    solver_cpu_seconds: float
    busy_gpu_seconds: Floats  # of each type


class Simulator:
    """One run of one trace. The clock is only read to tell how long decisions take."""

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
        table.check_runs(jobs.classes)
        self.table, self.capacity, self.jobs, self.policy, self.belief = table, capacity, jobs, policy, belief
        self.restart_seconds, self.clock = restart_seconds, clock
        self.machines = Machines(table, capacity, jobs, restart_seconds)
        self.now = self.last_arrival = 0.0
        self.completed = np.full(jobs.size, np.nan)
        self.decisions = 0
        self.solver_seconds = 0.0
        self._arrived = self._ended = 0
        self._shortlist = Shortlist()
        self._spares: Ints = np.empty(0, dtype=np.int64)  # who waits and may fill free GPUs
        self._slices: deque[tuple[float, Ints, Columns]] = deque()
        self._pending = False  # something happened since the last decision
        self._next_decision = 0.0
        self._demand = _Demand(jobs, table, capacity)

    def run(self, progress: Callable[[int], None] = lambda done: None) -> Outcome:
        changed = False
        while self._ended < self.jobs.size:
            changed = self._receive() or changed
            self._pending |= changed
            if self._arrived == self._ended:
                self._pass(float(self.jobs.arrival_seconds[self._arrived]) - self.now)
            else:
                self._act(changed)
                changed = self._play()
            progress(self._ended)
        return Outcome(
            completed_seconds=self.completed,
            contention=self._demand.contention,
            preemptions=self.machines.preemptions,
            decisions=self.decisions,
            solver_cpu_seconds=self.solver_seconds,
            busy_gpu_seconds=self.machines.busy_gpu_seconds,
        )

    # -- what happens at one moment ---------------------------------------------------------------------------------------

    def _receive(self) -> bool:
        until = int(np.searchsorted(self.jobs.arrival_seconds, self.now, side="right"))
        if until == self._arrived:
            return False
        new = np.arange(self._arrived, until)
        self._shortlist.add(new)
        self._spares = np.concatenate([self._spares, new])
        self._arrived, self.last_arrival = until, self.now
        self._demand.begin(new)
        return True

    def _act(self, changed: bool) -> None:
        began = self.clock()
        if not self._slices or (self._pending and self.now >= self._next_decision - _SAME_SECONDS):
            self._decide()
        elif changed:
            self._fill()
        self.solver_seconds += self.clock() - began

    def _decide(self) -> None:
        self._shortlist.update(~np.isnan(self.completed), self._look)
        active = self._shortlist.jobs
        queue = self._queue(active)
        decision = self.policy.decide(queue, self.now, self.last_arrival)
        least_seconds = _LEAST_RESTARTS * self.restart_seconds
        period_seconds = max(decision.seconds, least_seconds)
        least_part = decision.least_part(self.restart_seconds)
        slices = cut(decision.shares, self.capacity, len(active), least_part, wide_first=decision.wide_first)
        end = self.now
        self._slices.clear()
        for piece in slices:
            end += piece.part * period_seconds
            self._slices.append((end, active, decision.shares.columns.chosen(piece.columns)))
        self.decisions += 1
        self._pending = False
        self._next_decision = self.now + max(decision.least_seconds, least_seconds)
        self._begin_slice()
        self._choose_spares(queue)
        self._fill()
        if len(self.machines.running) == self._arrived - self._ended and self.machines.all_at_best():
            self._let_be()

    def _let_be(self) -> None:
        """Nothing is better until somebody comes or goes."""
        _, active, columns = self._slices[0]
        self._slices = deque([(np.inf, active, columns)])

    def _look(self, jobs: Ints) -> Ints:
        queue = self._queue(jobs)
        return most_valuable_tasks(queue, self.policy.value(queue))

    def _begin_slice(self) -> None:
        _, active, columns = self._slices[0]
        self.machines.switch(active, columns.without(~np.isnan(self.completed[active])))

    def _choose_spares(self, queue: Queue) -> None:
        """Of those that wait, the most valuable by GPU."""
        jobs = self._shortlist.jobs
        waiting = np.flatnonzero(self.machines.place[jobs] < 0)
        if len(waiting) > _SPARES:
            density = (self.policy.value(queue) * queue.best_speeds / queue.gpus)[waiting]
            waiting = np.sort(waiting[np.argsort(-density, kind="stable")[:_SPARES]])
        self._spares = jobs[waiting]

    def _fill(self) -> None:
        """Free GPUs go to those who wait, the most valuable first, until the next decision."""
        free = self.machines.free()
        spares = self._spares[self.machines.gpus[self._spares] <= free.max()]
        spares = spares[(self.machines.place[spares] < 0) & np.isnan(self.completed[spares])]
        if not len(spares):
            return
        queue = self._queue(spares)
        worth = queue.speeds * (self.policy.value(queue) / queue.gpus)[:, None]
        room = (worth > 0) & (queue.gpus[:, None] <= free)
        order = np.argsort(-worth.max(axis=1), kind="stable")
        chosen: list[tuple[int, int]] = []
        for number in order[room[order].any(axis=1)].tolist():
            fits = np.where(queue.gpus[number] <= free, worth[number], 0.0)
            if fits.any():
                kind = int(fits.argmax())
                free[kind] -= queue.gpus[number]
                chosen.append((number, kind))
            if not free.any():
                break
        if chosen:
            numbers, types = np.array(chosen).T
            self.machines.add(spares[numbers], types)

    def _queue(self, which: Ints) -> Queue:
        machines = self.machines
        kept = machines.place[which, None] == np.arange(len(self.capacity))
        kept |= machines.made[which, None] == 0
        moved = max(_LEAST_EFFICIENCY, 1.0 - self.restart_seconds / _AMORTISED_SECONDS)
        return Queue(
            table=self.table,
            capacity=self.capacity,
            classes=self.jobs.classes[which],
            left_steps=self.belief(which, machines.made[which]),
            made_steps=machines.made[which],
            weights=self.jobs.weights[which],
            age_seconds=self.now - self.jobs.arrival_seconds[which],
            crowding=self._demand.crowding,
            places=machines.place[which],
            partners=numbers_among(machines.partner[which], which),
            efficiency=np.where(kept, 1.0, moved),
        )

    # -- time passes ------------------------------------------------------------------------------------------------------

    def _play(self) -> bool:
        """To the next event; whether a job ended."""
        arrival = self.jobs.arrival_seconds[self._arrived] if self._arrived < self.jobs.size else np.inf
        end = self._slices[0][0]
        until = min(end, arrival, self._next_decision if self._pending else np.inf)
        ended = self._pass(min(self.machines.next_end_seconds(), max(until - self.now, 0.0)))
        if self.now >= end - _SAME_SECONDS:
            self._slices.popleft()
            if self._slices:
                self._begin_slice()
                self._spares = self._shortlist.jobs
                self._fill()
        return bool(len(ended))

    def _pass(self, seconds: float) -> Ints:
        ended = self.machines.advance(seconds)
        self.now += seconds
        self._demand.advance(seconds)
        if len(ended):
            self.completed[ended] = self.now
            self._demand.end(ended, self.now - self.jobs.arrival_seconds[ended])
            self._ended += len(ended)
        return ended


class _Demand:
    """How many GPUs were wanted while a job was there, beside those that there are."""

    def __init__(self, jobs: Jobs, table: SpeedTable, capacity: Ints) -> None:
        self.gpus, self.total = table.gpus[jobs.classes], float(capacity.sum())
        self.parts = (table.gpus / table.equal_gpus(capacity))[jobs.classes]
        self.contention = np.zeros(jobs.size)
        self._at_arrival = np.zeros(jobs.size)
        self._wanted = self._gpu_seconds = self._parts = 0.0

    @property
    def crowding(self) -> float:
        """The part of what is wanted that is not there, if every job wants the GPUs that suit it."""
        return max(0.0, 1.0 - 1.0 / max(self._parts, 1.0))

    def begin(self, jobs: Ints) -> None:
        self._at_arrival[jobs] = self._gpu_seconds
        self._wanted += self.gpus[jobs].sum()
        self._parts += self.parts[jobs].sum()

    def advance(self, seconds: float) -> None:
        self._gpu_seconds += self._wanted * seconds

    def end(self, jobs: Ints, life_seconds: Floats) -> None:
        self._wanted -= self.gpus[jobs].sum()
        self._parts -= self.parts[jobs].sum()
        wanted = (self._gpu_seconds - self._at_arrival[jobs]) / np.maximum(life_seconds, _SAME_SECONDS)
        self.contention[jobs] = wanted / self.total

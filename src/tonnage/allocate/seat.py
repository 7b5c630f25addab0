"""One GPU of a plan in the making: who is on it, and how far they have got.

Tasks come one after the other. A new one starts as soon as a place is free and the memory holds it beside those that are
there; they slow each other down for as long as they are together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tonnage.allocate.problem import Device, Problem, Task
from tonnage.allocate.sharing import joint_speeds, memory_holds, pays

Ended = Callable[[Task, float], None]


@dataclass(slots=True)
class Seat:
    """The state of a GPU at the moment `now`, from which on nothing is decided."""

    problem: Problem
    device: Device
    now: float = 0.0
    active: list[tuple[Task, float]] = field(default_factory=list)  # with seconds of work that are left, alone
    empty_at: float = 0.0  # if nobody else comes

    def copy(self) -> Seat:
        return Seat(self.problem, self.device, self.now, list(self.active), self.empty_at)

    def add(self, task: Task, ready: float, ended: Ended = lambda task, end: None) -> float:
        """Let a task start here at the earliest; when that is."""
        while not (self.now >= ready and self._takes(task)):
            self._step(until=ready if ready > self.now else float("inf"), ended=ended)
        start = self.now
        self.active.append((task, task.seconds_on(self.device.gpu)))
        self.empty_at = max(end for _, end in self.ends())
        return start

    def ends(self) -> list[tuple[Task, float]]:
        """When those that are here end, if nobody else comes."""
        found: list[tuple[Task, float]] = []
        future = Seat(self.problem, self.device, self.now, list(self.active))
        while future.active:
            future._step(until=float("inf"), ended=lambda task, end: found.append((task, end)))
        return found

    def drain(self, ended: Ended = lambda task, end: None) -> None:
        while self.active:
            self._step(until=float("inf"), ended=ended)

    def wait_until(self, moment: float, ended: Ended = lambda task, end: None) -> None:
        while self.active or self.now < moment:
            self._step(until=moment if moment > self.now else float("inf"), ended=ended)

    def _takes(self, task: Task) -> bool:
        if not self.active:
            return True
        present = [member for member, _ in self.active]
        if len(present) >= self.problem.most_together or not all(each.may_share for each in (*present, task)):
            return False
        profiles = [each.profiles[self.device.gpu] for each in (*present, task)]
        return pays(self.problem, profiles) and memory_holds(self.device, profiles, self.problem.risk)

    def _step(self, until: float, ended: Ended) -> None:
        """To the next end, or until then."""
        if not self.active:
            self.now = until
            return
        speeds = joint_speeds(self.problem, [task.profiles[self.device.gpu] for task, _ in self.active])
        first = min(left / speed for (_, left), speed in zip(self.active, speeds, strict=True))
        step = min(first, until - self.now)
        self.now = until if step < first else self.now + first
        rest: list[tuple[Task, float]] = []
        for (task, left), speed in zip(self.active, speeds, strict=True):
            remains = left - step * speed
            if remains <= 1e-9 * task.seconds_on(self.device.gpu):
                ended(task, self.now)
            else:
                rest.append((task, remains))
        self.active = rest

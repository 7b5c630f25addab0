"""One GPU of a plan in the making: who is on it, and how far they have got.

Tasks come one after the other. A new one starts as soon as a place is free and the memory holds it beside those that are
there; they slow each other down for as long as they are together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tonnage.allocate.company import Company
from tonnage.allocate.problem import Device, Task

Ended = Callable[[Task, float], None]
_NEARLY = 1e-9  # of a task's time: so little is done with the rest


@dataclass(slots=True)
class Seat:
    """The state of a GPU at the moment `now`, from which on nothing is decided."""

    company: Company
    device: Device
    now: float = 0.0
    active: list[tuple[Task, float]] = field(default_factory=list)  # with seconds of work that are left, alone
    _empty_at: float | None = 0.0

    def copy(self) -> Seat:
        return Seat(self.company, self.device, self.now, list(self.active), self._empty_at)

    @property
    def empty_at(self) -> float:
        """If nobody else comes."""
        if self._empty_at is None:
            self._empty_at = max((end for _, end in self.ends()), default=self.now)
        return self._empty_at

    def add(self, task: Task, ready: float, ended: Ended = lambda task, end: None) -> float:
        """Let a task start here at the earliest; when that is."""
        while not (self.now >= ready and self._takes(task)):
            self._step(until=ready if ready > self.now else float("inf"), ended=ended)
        self.active.append((task, task.seconds_on(self.device.gpu)))
        self._empty_at = None
        return self.now

    def ends(self) -> list[tuple[Task, float]]:
        """When those that are here end, if nobody else comes."""
        found: list[tuple[Task, float]] = []
        self.copy().drain(lambda task, end: found.append((task, end)))
        return found

    def drain(self, ended: Ended = lambda task, end: None) -> None:
        while self.active:
            self._step(until=float("inf"), ended=ended)

    def wait_until(self, moment: float, ended: Ended = lambda task, end: None) -> None:
        while self.active or self.now < moment:
            self._step(until=moment if moment > self.now else float("inf"), ended=ended)

    def _takes(self, task: Task) -> bool:
        return not self.active or self.company.takes(self.device, [member for member, _ in self.active], task)

    def _step(self, until: float, ended: Ended) -> None:
        """To the next end, or until then."""
        if not self.active:
            self.now = until
        elif len(self.active) == 1:
            self._step_alone(until, ended)
        else:
            self._step_together(until, ended)

    def _step_alone(self, until: float, ended: Ended) -> None:
        """The same as together, only faster: most of the time of searches is spent here."""
        task, left = self.active[0]
        remains = left - (until - self.now)
        if remains <= _NEARLY * task.seconds_on(self.device.gpu):
            self.now = min(until, self.now + left)
            self.active = []
            ended(task, self.now)
        else:
            self.now = until
            self.active = [(task, remains)]

    def _step_together(self, until: float, ended: Ended) -> None:
        gpu = self.device.gpu
        speeds = self.company.speeds([task.profiles[gpu] for task, _ in self.active])
        first = min(left / speed for (_, left), speed in zip(self.active, speeds, strict=True))
        step = min(first, until - self.now)
        self.now = until if step < first else self.now + first
        rest: list[tuple[Task, float]] = []
        for (task, left), speed in zip(self.active, speeds, strict=True):
            remains = left - step * speed
            if remains <= _NEARLY * task.seconds_on(gpu):
                ended(task, self.now)
            else:
                rest.append((task, remains))
        self.active = rest

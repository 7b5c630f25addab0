"""A plan in the making: tasks are put on it one after the other, each where it does best at that moment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from tonnage.allocate.company import Company
from tonnage.allocate.objectives import Objective, joules, lateness, own_seconds
from tonnage.allocate.plan import Assignment
from tonnage.allocate.problem import LEVELS, Task
from tonnage.allocate.seat import Seat

_TRIED = 4  # GPUs of each model: those with a place free first, and as many that are empty first


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A way to place one task: its GPUs, when it starts at the earliest, and what that adds to the objective."""

    devices: tuple[int, ...]
    ready: float
    score: tuple[float, float]  # of equal ones, the earlier end is better


class Timetable:
    def __init__(self, company: Company, objective: Objective, preferred: Mapping[str, str]) -> None:
        """`preferred` are models of GPUs that some tasks shall have, whatever else they could."""
        self.company, self.problem, self.objective, self.preferred = company, company.problem, objective, preferred
        self.seats = [Seat(company, device) for device in self.problem.devices]
        self._own = own_seconds(self.problem, objective)
        self.starts: dict[str, tuple[float, tuple[int, ...]]] = {}
        self.ends: dict[str, float] = {}

    def place(self, task: Task) -> None:
        """Put it where it does best."""
        waits = [self._end_of(name) for name in task.after]
        ready = max([task.release_seconds, *waits])
        best = min(self._options(task, ready), key=lambda option: option.score, default=None)
        if best is not None:
            self._take(task, best)

    def assignments(self) -> list[Assignment]:
        for seat in self.seats:
            seat.drain(self._ended)
        places = [device.place for device in self.problem.devices]
        starts = {
            name: (start, tuple(places[number] for number in devices)) for name, (start, devices) in self.starts.items()
        }
        return assignments_of(starts, self.ends)

    def _ended(self, task: Task, end_seconds: float) -> None:
        self.ends[task.name] = end_seconds

    def _end_of(self, name: str) -> float:
        """Of a task that others wait for: nobody joins it, so that its end is known."""
        if name not in self.ends:
            _, devices = self.starts[name]
            return next(end for task, end in self.seats[devices[0]].ends() if task.name == name)
        return self.ends[name]

    # -- options ------------------------------------------------------------------------------------------------------

    def _options(self, task: Task, ready: float) -> Iterator[Option]:
        for gpu in self._models(task):
            allowed = self.company.allowed(task)[gpu]
            if len(allowed) < task.gpus:
                continue
            if task.gpus > 1:
                yield self._gang(task, gpu, allowed, ready)
            else:
                yield from (self._alone(task, number, ready) for number in self._promising(allowed))

    def _models(self, task: Task) -> Iterable[str]:
        wish = self.preferred.get(task.name)
        return [wish] if wish else task.profiles

    def _promising(self, allowed: list[int]) -> list[int]:
        if len(allowed) <= 2 * _TRIED:
            return allowed
        by_place = sorted(allowed, key=lambda number: (len(self.seats[number].active), self.seats[number].now))
        by_end = sorted(allowed, key=lambda number: self.seats[number].empty_at)
        return list(dict.fromkeys([*by_end[:_TRIED], *by_place[:_TRIED]]))

    def _alone(self, task: Task, number: int, ready: float) -> Option:
        before, after = self.seats[number], self.seats[number].copy()
        ended: list[tuple[Task, float]] = []
        after.add(task, ready, lambda member, end: ended.append((member, end)))
        ends = [*ended, *after.ends()]
        device = before.device
        score = self._score(
            task, device.gpu, ends, before.ends(), before.empty_at, after.empty_at, device.price_usd_hour
        )
        return Option(devices=(number,), ready=ready, score=(score, after.empty_at))

    def _gang(self, task: Task, gpu: str, allowed: list[int], ready: float) -> Option:
        """GPUs that are empty first; of those empty by then, the ones that were busy longest, and near each other."""
        by_time = sorted(allowed, key=lambda number: self.seats[number].empty_at)
        start = max(ready, self.seats[by_time[task.gpus - 1]].empty_at)
        devices = self._near(task, [number for number in by_time if self.seats[number].empty_at <= start])
        end = start + task.seconds_on(gpu)
        price = sum(self.problem.devices[number].price_usd_hour for number in devices)
        return Option(
            devices=devices, ready=start, score=(self._score(task, gpu, [(task, end)], [], start, end, price), end)
        )

    def _near(self, task: Task, free: list[int]) -> tuple[int, ...]:
        """In the smallest part of the cluster that has room for all, and in the fullest one of those."""
        for level in LEVELS[LEVELS.index(task.near) :] if task.near else LEVELS:
            parts: dict[str, list[int]] = {}
            for number in free:
                parts.setdefault(getattr(self.problem.devices[number], level), []).append(number)
            fitting = [part for name, part in parts.items() if name and len(part) >= task.gpus]
            if fitting:
                return tuple(sorted(min(fitting, key=len)[-task.gpus :]))
        return tuple(sorted(free[-task.gpus :]))

    def _score(
        self,
        task: Task,
        gpu: str,
        ends: list[tuple[Task, float]],
        ends_before: list[tuple[Task, float]],
        empty_before: float,
        empty_after: float,
        price_usd_hour: float,
    ) -> float:
        """What the task adds to the objective, others that it slows down included."""
        match self.objective:
            case Objective.MAKESPAN:
                return empty_after
            case Objective.FAIRNESS | Objective.FINISH_TIME:
                return max((end - each.release_seconds) / self._own[each.name] for each, end in ends)
            case Objective.COMPLETION:
                return _weighted(ends) - _weighted(ends_before)
            case Objective.DEADLINE:
                return _late(ends) - _late(ends_before)
            case Objective.ENERGY:
                return joules(task, gpu)
            case Objective.COST:
                return price_usd_hour * (empty_after - empty_before)

    # -- taking -------------------------------------------------------------------------------------------------------

    def _take(self, task: Task, option: Option) -> None:
        start = option.ready
        for number in option.devices:
            seat = self.seats[number]
            if task.gpus > 1:
                seat.wait_until(option.ready, self._ended)
            start = seat.add(task, option.ready, self._ended)
        self.starts[task.name] = start, option.devices


def assignments_of(starts: Mapping[str, tuple[float, tuple[str, ...]]], ends: Mapping[str, float]) -> list[Assignment]:
    """With who is beside whom: those that have the same GPU at the same time."""
    there: dict[str, list[str]] = {}
    beside: dict[str, list[str]] = {name: [] for name in starts}
    for name, (_, places) in starts.items():
        there.setdefault(places[0], []).append(name)
    for names in there.values():
        for one, other in combinations(names, 2):
            if starts[one][0] < ends[other] and starts[other][0] < ends[one]:
                beside[one].append(other)
                beside[other].append(one)
    return [
        Assignment(task=name, gpus=places, start_seconds=start, end_seconds=ends[name], beside=tuple(beside[name]))
        for name, (start, places) in starts.items()
    ]


def _weighted(ends: list[tuple[Task, float]]) -> float:
    return sum(task.weight * end for task, end in ends)


def _late(ends: list[tuple[Task, float]]) -> float:
    return sum(lateness(task, end) for task, end in ends)

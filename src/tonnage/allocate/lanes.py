"""The order of tasks on each GPU. What changes on two GPUs leaves all others as they are, so that a change costs little.

Only tasks that have one GPU and nothing to do with other tasks move between lanes. What is fixed on a GPU, and all that
begins before that is over, lies before the lane.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

from tonnage.allocate.company import Company
from tonnage.allocate.objectives import Objective, covered_seconds, lateness, own_seconds
from tonnage.allocate.problem import Task
from tonnage.allocate.seat import Seat


@dataclass(slots=True)
class Played:
    """When tasks start and end on one GPU."""

    starts: dict[str, float] = field(default_factory=dict)
    ends: list[tuple[Task, float]] = field(default_factory=list)

    def ended(self, task: Task, end_seconds: float) -> None:
        self.ends.append((task, end_seconds))


class Lanes:
    def __init__(self, company: Company, objective: Objective, tasks: Sequence[Task]) -> None:
        """All lanes are empty."""
        self.problem, self.objective = company.problem, objective
        self.seats = [Seat(company, device) for device in self.problem.devices]
        self.before = [Played() for _ in self.seats]
        self.orders: list[list[Task]] = [[] for _ in self.seats]
        self.costs = [0.0] * len(self.seats)
        self._own = own_seconds(self.problem, objective)
        self.allowed = {task.name: sorted(chain(*company.allowed(task).values())) for task in tasks}

    def begin(self, lane: int, before: Iterable[tuple[Task, float]]) -> None:
        """With what lies before the lane: tasks and when they start."""
        seat, played = self.seats[lane], self.before[lane]
        for task, start_seconds in before:
            if task.gpus > 1:
                seat.wait_until(start_seconds, played.ended)
            played.starts[task.name] = seat.add(task, start_seconds, played.ended)

    def set(self, lane: int, order: list[Task], cost: float | None = None) -> None:
        self.orders[lane] = order
        self.costs[lane] = self.cost(lane, order) if cost is None else cost

    def set_best(self, lane: int, order: list[Task]) -> None:
        """In this order, or the longest first, or with the busiest beside the least busy."""
        gpu = self.problem.devices[lane].gpu
        longest = sorted(order, key=lambda task: -task.seconds_on(gpu))
        busiest = sorted(order, key=lambda task: -task.profiles[gpu].busy)
        mixed = [task for pair in zip(busiest, reversed(busiest), strict=True) for task in pair][: len(order)]
        self.set(lane, min((order, longest, mixed), key=lambda each: self.cost(lane, each)))

    def play(self, lane: int, order: Iterable[Task]) -> Played:
        """In that order, each as soon as it has a place."""
        seat, before = self.seats[lane].copy(), self.before[lane]
        played = Played(dict(before.starts), list(before.ends))
        for task in order:
            played.starts[task.name] = seat.add(task, task.release_seconds, played.ended)
        seat.drain(played.ended)
        return played

    def cost(self, lane: int, order: Iterable[Task]) -> float:
        """What the GPU adds to the objective, or, of the greatest of all, its own."""
        played = self.play(lane, order)
        match self.objective:
            case Objective.MAKESPAN:
                return max((end for _, end in played.ends), default=0.0)
            case Objective.COMPLETION:
                return sum(task.weight * end for task, end in played.ends)
            case Objective.DEADLINE:
                return sum(lateness(task, end) for task, end in played.ends)
            case Objective.FAIRNESS | Objective.FINISH_TIME:
                return max(((end - t.release_seconds) / self._own[t.name] for t, end in played.ends), default=0.0)
            case Objective.COST:
                spans = [(played.starts[task.name], end) for task, end in played.ends]
                return self.problem.devices[lane].price_usd_hour * covered_seconds(spans)
            case Objective.ENERGY:
                return 0.0

    def enough(self, bound: float) -> float:
        """A bound of the objective, as a bound of the costs. What lies before lanes of several GPUs counts for each."""
        match self.objective:
            case Objective.COMPLETION:
                tasks = self.problem.tasks
                released = sum(task.weight * task.release_seconds for task in tasks)
                return bound * sum(task.weight for task in tasks) + released
            case Objective.COST:
                return bound * 3600
            case _:
                return bound

    def may_have(self, task: Task, lane: int) -> bool:
        allowed = self.allowed[task.name]
        place = bisect_left(allowed, lane)
        return place < len(allowed) and allowed[place] == lane

    @property
    def total(self) -> float:
        return max(self.costs) if self.is_worst_of_all else sum(self.costs)

    @property
    def is_worst_of_all(self) -> bool:
        """The objective is the greatest of all lanes, not their sum."""
        return self.objective in (Objective.MAKESPAN, Objective.FAIRNESS, Objective.FINISH_TIME)


def movable(tasks: Sequence[Task]) -> list[Task]:
    """On one GPU each, none that waits for others or that others wait for."""
    awaited = {name for task in tasks for name in task.after}
    return [task for task in tasks if task.gpus == 1 and not task.after and task.name not in awaited]

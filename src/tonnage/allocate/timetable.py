"""A plan in the making: tasks are put on it one after the other, each where it does best at that moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tonnage.allocate.group import Group, make_group
from tonnage.allocate.objectives import Objective, joules, lateness
from tonnage.allocate.plan import Assignment
from tonnage.allocate.problem import LEVELS, Problem, Task
from tonnage.allocate.sharing import memory_holds, pays

_JOINED = 8  # groups of each model that a task may join, the earliest ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A way to place one task, and what it adds to the objective. Of equal ones, the earlier end is better."""

    group: Group
    replaced: Group | None  # that it joins
    score: tuple[float, ...]


class Timetable:
    def __init__(self, problem: Problem, objective: Objective) -> None:
        self.problem, self.objective = problem, objective
        self.free_at = [0.0] * len(problem.devices)
        self.ends: dict[str, float] = {}
        self._by_model = {
            gpu: [number for number, device in enumerate(problem.devices) if device.gpu == gpu]
            for gpu in problem.models
        }
        self._groups: dict[int, Group] = {}  # by an identity of their own
        self._group_of_device: list[int] = [-1] * len(problem.devices)
        self._made = 0
        self._awaited = {name for task in problem.tasks for name in task.after}

    def place(self, task: Task) -> bool:
        """Put it where it does best; whether there was such a place."""
        ready = max([task.release_seconds, *(self.ends[name] for name in task.after)])
        best = min(self._options(task, ready), key=lambda option: option.score, default=None)
        if best is None:
            return False
        self._take(best)
        return True

    def groups(self) -> Iterator[Group]:
        yield from self._groups.values()

    def assignments(self) -> list[Assignment]:
        made = []
        for group in self.groups():
            for task, end in zip(group.members, group.end_seconds, strict=True):
                made.append(
                    Assignment(
                        task=task.name,
                        gpus=tuple(self.problem.devices[number].place for number in group.devices),
                        start_seconds=group.start_seconds,
                        end_seconds=end,
                        beside=tuple(other.name for other in group.members if other is not task),
                    )
                )
        return made

    # -- options ------------------------------------------------------------------------------------------------------

    def _options(self, task: Task, ready: float) -> Iterator[Option]:
        for gpu in task.profiles:
            allowed = self._allowed(task, gpu)
            if len(allowed) < task.gpus:
                continue
            devices, start = self._earliest(task, allowed, ready)
            yield self._option(make_group(self.problem, (task,), gpu, devices, start), None)
            if task.may_share:
                yield from self._joining(task, gpu, allowed, ready)

    def _allowed(self, task: Task, gpu: str) -> list[int]:
        devices = self.problem.devices
        numbers: Sequence[int] = self._by_model.get(gpu, ())
        if task.pinned:
            numbers = [number for number in numbers if devices[number].place in task.pinned]
        if task.nodes:
            numbers = [number for number in numbers if devices[number].node in task.nodes]
        profile = [task.profiles[gpu]]
        return [number for number in numbers if memory_holds(devices[number], profile, self.problem.risk)]

    def _earliest(self, task: Task, allowed: list[int], ready: float) -> tuple[tuple[int, ...], float]:
        """The GPUs that are free first; of those free by then, the ones that were busy longest, and near each other."""
        by_time = sorted(allowed, key=lambda number: self.free_at[number])
        start = max(ready, self.free_at[by_time[task.gpus - 1]])
        free = [number for number in by_time if self.free_at[number] <= start]
        if task.gpus == 1:
            return (free[-1],), start
        return self._near(task, free), start

    def _near(self, task: Task, free: list[int]) -> tuple[int, ...]:
        """In the smallest part of the cluster that has room for all, and in the fullest one of those."""
        wanted = LEVELS.index(task.near) if task.near else 0
        for level in LEVELS[wanted:] if task.near else LEVELS:
            parts: dict[str, list[int]] = {}
            for number in free:
                parts.setdefault(getattr(self.problem.devices[number], level), []).append(number)
            fitting = [part for name, part in parts.items() if name and len(part) >= task.gpus]
            if fitting:
                return tuple(sorted(min(fitting, key=len)[-task.gpus :]))
        return tuple(sorted(free[-task.gpus :]))

    def _joining(self, task: Task, gpu: str, allowed: list[int], ready: float) -> Iterator[Option]:
        found: dict[int, Group] = {}
        for number in allowed:
            identity = self._group_of_device[number]
            if identity >= 0 and self._groups[identity].start_seconds >= ready:
                found[identity] = self._groups[identity]
        open_groups = [
            group for each, group in found.items() if self._is_last(each, group) and self._may_join(task, group)
        ]
        for group in sorted(open_groups, key=lambda group: group.start_seconds)[:_JOINED]:
            members = (*group.members, task)
            yield self._option(make_group(self.problem, members, gpu, group.devices, group.start_seconds), group)

    def _is_last(self, identity: int, group: Group) -> bool:
        """On all of its GPUs: nothing follows that it would delay."""
        return all(self._group_of_device[number] == identity for number in group.devices)

    def _may_join(self, task: Task, group: Group) -> bool:
        members = (*group.members, task)
        if len(members) > self.problem.most_together or len(group.devices) != task.gpus:
            return False
        if not all(member.may_share for member in group.members):
            return False
        if task.pinned and {self.problem.devices[number].place for number in group.devices} != set(task.pinned):
            return False
        # Whoever waits for a member knows when it ends.
        if any(member.name in self._awaited for member in group.members):
            return False
        profiles = [member.profiles[group.gpu] for member in members]
        device = self.problem.devices[group.devices[0]]
        return pays(self.problem, profiles) and memory_holds(device, profiles, self.problem.risk)

    def _option(self, group: Group, replaced: Group | None) -> Option:
        return Option(group=group, replaced=replaced, score=(self._score(group, replaced), group.last_end_seconds))

    def _score(self, group: Group, replaced: Group | None) -> float:
        """What the group adds, beyond what the one that it replaces had added."""
        before = self._worth(replaced) if replaced is not None else 0.0
        return self._worth(group) - (before if self.objective not in _WORST else 0.0)

    def _worth(self, group: Group) -> float:
        pairs = list(zip(group.members, group.end_seconds, strict=True))
        match self.objective:
            case Objective.MAKESPAN:
                return group.last_end_seconds
            case Objective.FAIRNESS:
                return max((end - task.release_seconds) / task.least_seconds for task, end in pairs)
            case Objective.COMPLETION:
                return sum(task.weight * end for task, end in pairs)
            case Objective.DEADLINE:
                return sum(lateness(task, end) for task, end in pairs)
            case Objective.ENERGY:
                return sum(joules(task, group.gpu) for task, _ in pairs)
            case Objective.COST:
                price = sum(self.problem.devices[number].price_usd_hour for number in group.devices)
                return price * (group.last_end_seconds - group.start_seconds)

    # -- taking -------------------------------------------------------------------------------------------------------

    def _take(self, option: Option) -> None:
        group = option.group
        if option.replaced is None:
            identity = self._made
            self._made += 1
        else:
            identity = self._group_of_device[group.devices[0]]
        self._groups[identity] = group
        for number in group.devices:
            self.free_at[number] = group.last_end_seconds
            self._group_of_device[number] = identity
        for task, end in zip(group.members, group.end_seconds, strict=True):
            self.ends[task.name] = end


_WORST = (Objective.MAKESPAN, Objective.FAIRNESS)  # the worst counts, not the sum

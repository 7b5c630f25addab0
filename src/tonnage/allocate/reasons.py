"""Why here, and why not there: one sentence for each placement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tonnage.allocate.alternatives import TOO_LITTLE_MEMORY, why_not
from tonnage.allocate.feasible import usable_devices
from tonnage.allocate.objectives import Objective, joules, words_for
from tonnage.allocate.plan import Assignment, Plan
from tonnage.allocate.problem import Problem, Task
from tonnage.allocate.sharing import memory_needed
from tonnage.units import format_bytes, format_seconds

_MOMENT = 1e-6  # seconds
_NOTABLE = 1e-3  # of the bound
_NAMES = 3  # are told, of many


def with_reasons(problem: Problem, objective: Objective, plan: Plan) -> tuple[Assignment, ...]:
    reasons = _Reasons(problem, objective, plan)
    return tuple(replace(each, reason="; ".join(reasons.of(each))) for each in plan.assignments)


def what_more_would_bring(plan: Plan) -> str:
    """Of one more GPU of each model, the most useful first; nothing where it would not lower the bound."""
    objective = Objective(plan.objective)
    useful = {gpu: brings for gpu, brings in plan.one_more.items() if brings > _NOTABLE * plan.bound}
    words = [f"{gpu} {words_for(objective, useful[gpu])}" for gpu in sorted(useful, key=lambda gpu: -useful[gpu])]
    return f"one more GPU would take off the bound, at most: {', '.join(words)}" if words else ""


class _Reasons:
    """What the sentences of one plan are made from."""

    def __init__(self, problem: Problem, objective: Objective, plan: Plan) -> None:
        self.problem, self.objective = problem, objective
        self.tasks = {task.name: task for task in problem.tasks}
        self.devices = {device.place: device for device in problem.devices}
        self.planned = {each.task: each for each in plan.assignments}
        self.busy_until = dict.fromkeys(self.devices, 0.0)
        for each in plan.assignments:
            for place in each.gpus:
                self.busy_until[place] = max(self.busy_until[place], each.end_seconds)

    def of(self, each: Assignment) -> Iterator[str]:
        task, device = self.tasks[each.task], self.devices[each.gpus[0]]
        yield f"pinned to {', '.join(task.pinned)}" if task.pinned else self._why_model(task, each, device.gpu)
        if each.beside:
            most = format_bytes(self._most_bytes(each, device.gpu))
            yield f"beside {_some(each.beside)}: together at most {most} of {format_bytes(device.memory_bytes)}"
        before = self._before(task)
        if each.start_seconds > before + _MOMENT:
            yield f"waits {format_seconds(each.start_seconds - before)} for it"
        elif task.after and before > task.release_seconds:
            yield f"after {_some(task.after)}"

    def _before(self, task: Task) -> float:
        """It cannot start earlier, wherever it is."""
        return max([task.release_seconds, *(self.planned[name].end_seconds for name in task.after)])

    def _most_bytes(self, each: Assignment, gpu: str) -> float:
        """Those beside it come and go: the most that is there at a time."""
        there = [each, *(self.planned[name] for name in each.beside)]
        moments = [max(other.start_seconds, each.start_seconds) for other in there]
        at_once = ([o for o in there if o.start_seconds <= moment < o.end_seconds] for moment in moments)
        return max(
            memory_needed([self.tasks[other.task].profiles[gpu] for other in present], self.problem.risk)
            for present in at_once
        )

    def _why_model(self, task: Task, each: Assignment, gpu: str) -> str:
        usable = [model for model in self.problem.models if _can_run(self.problem, task, model)]
        if usable == [gpu]:
            return self._only(task, gpu)
        seconds = {model: task.seconds_on(model) for model in usable}
        fastest = min(seconds, key=lambda model: seconds[model])
        if seconds[gpu] <= seconds[fastest]:
            return f"fastest on {gpu} ({format_seconds(seconds[gpu])})"
        if least := self._needs_least(task, each, gpu, usable):
            return least
        there = self._free_from(task, fastest) + seconds[fastest]
        takes = f"{format_seconds(seconds[gpu])} on {gpu}"
        if there < each.end_seconds:
            return f"{takes} will do; {fastest} would take {format_seconds(seconds[fastest])}"
        return f"{takes}; done later, after {format_seconds(there)}, behind the tasks on {fastest}"

    def _only(self, task: Task, gpu: str) -> str:
        others = [model for model in self.problem.models if model != gpu]
        if not others:
            return f"all GPUs are {gpu}"
        against = {why_not(self.problem, task, model) for model in others}
        return f"only {gpu} can hold it" if against == {TOO_LITTLE_MEMORY} else f"only {gpu} will do"

    def _needs_least(self, task: Task, each: Assignment, gpu: str, usable: Sequence[str]) -> str:
        if self.objective is Objective.ENERGY:
            least = min(usable, key=lambda model: joules(task, model))
            return f"needs least energy on {gpu}" if joules(task, gpu) <= joules(task, least) else ""
        if self.objective is Objective.COST:
            here = task.seconds_on(gpu) * sum(self.devices[place].price_usd_hour for place in each.gpus)
            least_usd = min(self._usd(task, model) for model in usable)
            return f"needs least money on {gpu}" if here <= least_usd * (1 + 1e-9) else ""
        return ""

    def _usd(self, task: Task, gpu: str) -> float:
        """To compare by: seconds times dollars an hour, on the cheapest GPUs of a model."""
        prices = sorted(device.price_usd_hour for device in usable_devices(self.problem, task, gpu))
        return task.seconds_on(gpu) * sum(prices[: task.gpus])

    def _free_from(self, task: Task, gpu: str) -> float:
        """When enough GPUs of a model have nothing more to do, and the task may start."""
        free = sorted(self.busy_until[device.place] for device in usable_devices(self.problem, task, gpu))
        return max(free[task.gpus - 1], self._before(task))


def _can_run(problem: Problem, task: Task, gpu: str) -> bool:
    return len(usable_devices(problem, task, gpu)) >= task.gpus


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(names[:_NAMES]) + more

"""An independent look at a plan: whether it can be carried out, and what it is worth, from its assignments alone.

It shares no code with the solvers beyond what a task is and how fast tasks are beside each other.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from tonnage.allocate.objectives import Objective, value_of
from tonnage.allocate.plan import Assignment, Plan
from tonnage.allocate.problem import Device, Problem, Task
from tonnage.allocate.sharing import joint_speeds, memory_holds

_CLOSE = 1e-6  # of a task's length
_MOMENT = 1e-6  # seconds


def check(problem: Problem, plan: Plan) -> float:
    """The plan's value. Raises `ValueError` that names what is wrong with it."""
    for fault in faults(problem, plan):
        raise ValueError(fault)
    return value_of(problem, Objective(plan.objective), plan.assignments)


def faults(problem: Problem, plan: Plan) -> Iterator[str]:
    tasks = {task.name: task for task in problem.tasks}
    devices = {device.place: device for device in problem.devices}
    ends = {each.task: each.end_seconds for each in plan.assignments}
    yield from _names(tasks, plan)
    for each in plan.assignments:
        if each.task in tasks:
            yield from _alone(tasks[each.task], each, devices, ends)
    if not problem.tasks or any(place not in devices for each in plan.assignments for place in each.gpus):
        return
    for together in _components(plan.assignments):
        yield from _together(problem, tasks, devices, together)
    value = value_of(problem, Objective(plan.objective), plan.assignments)
    if abs(value - plan.value) > _CLOSE * max(1.0, abs(value)):
        yield f"the plan says {plan.value:.9g}, its assignments are worth {value:.9g}"
    if plan.bound > plan.value + _CLOSE * max(1.0, abs(plan.value)):
        yield f"the bound {plan.bound:.9g} is above the value {plan.value:.9g}"


def _names(tasks: dict[str, Task], plan: Plan) -> Iterator[str]:
    seen = Counter([each.task for each in plan.assignments] + [each.task for each in plan.unplaced])
    for name, count in sorted(seen.items()):
        if name not in tasks:
            yield f"there is no task {name}"
        elif count > 1:
            yield f"{name} is there more than once"
    if missing := sorted(set(tasks) - set(seen)):
        yield f"nothing is said of {', '.join(missing[:3])}"


def _alone(task: Task, each: Assignment, devices: dict[str, Device], ends: dict[str, float]) -> Iterator[str]:
    """What can be seen of one assignment by itself."""
    if unknown := [place for place in each.gpus if place not in devices]:
        yield f"{task.name}: there is no GPU {unknown[0]}"
        return
    models = {devices[place].gpu for place in each.gpus}
    if len(each.gpus) != task.gpus or len(set(each.gpus)) != task.gpus:
        yield f"{task.name}: {len(set(each.gpus))} GPUs instead of {task.gpus}"
    if len(models) != 1 or not models <= task.profiles.keys():
        yield f"{task.name}: cannot run on {', '.join(sorted(models))}"
    if task.pinned and set(each.gpus) != set(task.pinned):
        yield f"{task.name}: not where it is pinned"
    if task.nodes and any(devices[place].node not in task.nodes for place in each.gpus):
        yield f"{task.name}: on a node that it may not use"
    if each.start_seconds < task.release_seconds - _MOMENT:
        yield f"{task.name}: starts before it is there"
    for name in task.after:
        if each.start_seconds < ends.get(name, float("inf")) - _MOMENT:
            yield f"{task.name}: starts before {name} is over"


def _components(assignments: Sequence[Assignment]) -> Iterator[list[Assignment]]:
    """Assignments that have something to do with each other, because they use the same GPUs."""
    parent: dict[str, str] = {}

    def root(place: str) -> str:
        while parent.setdefault(place, place) != place:
            parent[place] = place = parent[parent[place]]
        return place

    for each in assignments:
        for place in each.gpus[1:]:
            parent[root(place)] = root(each.gpus[0])
    found: dict[str, list[Assignment]] = defaultdict(list)
    for each in assignments:
        found[root(each.gpus[0])].append(each)
    yield from found.values()


def _together(
    problem: Problem, tasks: dict[str, Task], devices: dict[str, Device], assignments: list[Assignment]
) -> Iterator[str]:
    """From one change to the next: who is on each GPU, whether they fit, and how far each gets."""
    done = dict.fromkeys((each.task for each in assignments), 0.0)
    times = sorted({time for each in assignments for time in (each.start_seconds, each.end_seconds)})
    waiting = sorted(assignments, key=lambda each: each.start_seconds, reverse=True)
    active: list[Assignment] = []
    for now, then in pairwise(times):
        while waiting and waiting[-1].start_seconds <= now:
            active.append(waiting.pop())
        active = [each for each in active if each.end_seconds > now]
        if then - now <= _MOMENT:
            continue
        speeds = {each.task: 1.0 for each in active}
        for place, present in _by_place(active):
            if len(present) > 1:
                yield from _fit(problem, devices[place], [tasks[each.task] for each in present])
            profiles = [tasks[each.task].profiles[devices[place].gpu] for each in present]
            for each, speed in zip(present, joint_speeds(problem, profiles), strict=True):
                speeds[each.task] = min(speeds[each.task], speed)
        for each in active:
            done[each.task] += speeds[each.task] * (then - now)
    for each in assignments:
        wanted = tasks[each.task].seconds_on(devices[each.gpus[0]].gpu)
        if abs(done[each.task] - wanted) > _CLOSE * wanted + 10 * _MOMENT:
            yield f"{each.task}: {done[each.task]:.6g} s of work are done of {wanted:.6g}"
        if not memory_holds(
            devices[each.gpus[0]], [tasks[each.task].profiles[devices[each.gpus[0]].gpu]], problem.risk
        ):
            yield f"{each.task}: does not fit into the memory of {each.gpus[0]}"


def _by_place(active: Iterable[Assignment]) -> Iterator[tuple[str, list[Assignment]]]:
    found: dict[str, list[Assignment]] = defaultdict(list)
    for each in active:
        for place in each.gpus:
            found[place].append(each)
    yield from found.items()


def _fit(problem: Problem, device: Device, present: list[Task]) -> Iterator[str]:
    names = ", ".join(task.name for task in present)
    if len(present) > problem.most_together:
        yield f"{device.place}: {len(present)} tasks at a time ({names})"
    if alone := [task.name for task in present if not task.may_share or task.gpus > 1]:
        yield f"{device.place}: {alone[0]} does not share ({names})"
    if not memory_holds(device, [task.profiles[device.gpu] for task in present], problem.risk):
        yield f"{device.place}: the memory does not hold {names}"

"""An independent check: feasibility and value from the instance and the places of the tasks alone."""

from __future__ import annotations

from collections import defaultdict

from tonnage.allocate.assign.problem import Assigned, Instance
from tonnage.allocate.speeds import Floats
from tonnage.errors import TonnageError


def makespan(instance: Instance, assigned: Assigned) -> float:
    """The largest sum of seconds on a GPU."""
    return max((ends[-1] for ends in _ends(instance, assigned).values()), default=0.0)


def total_completion(instance: Instance, assigned: Assigned) -> float:
    """The weighted sum of the times at which tasks end."""
    on_gpus, ends = _tasks_of_gpus(instance, assigned), _ends(instance, assigned)
    return float(
        sum(
            instance.weights[task] * end
            for gpu, tasks in on_gpus.items()
            for task, end in zip(tasks, ends[gpu], strict=True)
        )
    )


def total_cost(instance: Instance, assigned: Assigned, cost: Floats) -> float:
    """The sum of what each task costs where it runs."""
    return float(sum(cost[task, gpu[0]] for gpu, tasks in _tasks_of_gpus(instance, assigned).items() for task in tasks))


def _ends(instance: Instance, assigned: Assigned) -> dict[tuple[int, int], list[float]]:
    """When the tasks of each GPU end, one after the other."""
    result: dict[tuple[int, int], list[float]] = {}
    for gpu, tasks in _tasks_of_gpus(instance, assigned).items():
        now, ends = 0.0, []
        for task in tasks:
            now += float(instance.seconds[task, gpu[0]])
            ends.append(now)
        result[gpu] = ends
    return result


def _tasks_of_gpus(instance: Instance, assigned: Assigned) -> dict[tuple[int, int], list[int]]:
    """In the order in which they run; an error if anything is wrong with them."""
    on_gpus: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    left_out = set(assigned.unplaced.tolist())
    for task in range(instance.size):
        gpu = int(assigned.types[task]), int(assigned.gpus[task])
        if (task in left_out) != (gpu == (-1, -1)):
            raise TonnageError(f"task {task} is neither placed nor listed as unplaced")
        if task not in left_out:
            _may_run(instance, task, gpu)
            on_gpus[gpu].append((int(assigned.positions[task]), task))
    ordered = {gpu: [task for _, task in sorted(tasks)] for gpu, tasks in on_gpus.items()}
    for gpu, positioned in on_gpus.items():
        if sorted(position for position, _ in positioned) != list(range(len(positioned))):
            raise TonnageError(f"the tasks of GPU {gpu} have no clear order")
        _holds(instance, gpu, ordered[gpu])
    return ordered


def _may_run(instance: Instance, task: int, gpu: tuple[int, int]) -> None:
    number, index = gpu
    if not (0 <= number < len(instance.counts) and 0 <= index < instance.counts[number]):
        raise TonnageError(f"task {task} is on a GPU that does not exist: {gpu}")
    if instance.seconds[task, number] == float("inf"):
        raise TonnageError(f"task {task} cannot run on type {number}")


def _holds(instance: Instance, gpu: tuple[int, int], tasks: list[int]) -> None:
    sizes = [int(instance.memory_bytes[task, gpu[0]]) for task in tasks]
    needed = sum(sizes) if instance.resident else max(sizes)
    if needed > int(instance.capacity_bytes[gpu[0]]):
        raise TonnageError(f"the tasks of GPU {gpu} need {needed} bytes, it has {instance.capacity_bytes[gpu[0]]}")

"""Small instances, and their optima by trying everything."""

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
from hypothesis import strategies as st

from tonnage.allocate.assign import Floats, Instance, Ints

Place = tuple[int, int]  # type, GPU


def instance(
    seconds: list[list[float]],
    *,
    counts: list[int],
    memory: list[int] | None = None,
    capacity: list[int] | None = None,
    resident: bool = True,
    weights: list[float] | None = None,
) -> Instance:
    tasks, types = len(seconds), len(counts)
    sizes = np.array(memory or [0] * tasks, dtype=np.int64)
    return Instance(
        seconds=np.array(seconds, dtype=float).reshape(tasks, types),
        memory_bytes=np.repeat(sizes[:, None], types, axis=1),
        counts=np.array(counts, dtype=np.int64),
        capacity_bytes=np.array(capacity or [100] * types, dtype=np.int64),
        resident=resident,
        weights=np.array(weights or [1.0] * tasks),
    )


@st.composite
def tiny_instances(draw: st.DrawFn, *, resident: bool | None = None, weighted: bool = False) -> Instance:
    """Up to five tasks, three types, four GPUs; some types without GPUs, some tasks that do not run everywhere."""
    tasks, types = draw(st.integers(0, 5)), draw(st.integers(1, 3))
    length = st.one_of(st.integers(1, 12).map(float), st.just(float("inf")))
    return instance(
        [[draw(length) for _ in range(types)] for _ in range(tasks)],
        counts=draw(st.lists(st.integers(0, 2), min_size=types, max_size=types).filter(lambda x: 0 < sum(x) <= 4)),
        memory=[draw(st.integers(0, 12)) for _ in range(tasks)],
        capacity=[draw(st.integers(5, 20)) for _ in range(types)],
        resident=draw(st.booleans()) if resident is None else resident,
        weights=[draw(st.sampled_from([1.0, 2.0, 5.0])) if weighted else 1.0 for _ in range(tasks)],
    )


def tasks_with_a_place(given: Instance) -> Ints:
    return np.flatnonzero(given.possible.any(axis=1))


def optimum(given: Instance, tasks: Ints, value: Callable[[Instance, dict[Place, list[int]]], float]) -> float:
    """The least value of any feasible assignment of these tasks; inf if there is none."""
    return min((value(given, on_gpus) for on_gpus in _all_assignments(given, tasks)), default=float("inf"))


def longest(given: Instance, on_gpus: dict[Place, list[int]]) -> float:
    return max((sum(given.seconds[task, gpu[0]] for task in tasks) for gpu, tasks in on_gpus.items()), default=0.0)


def completion(given: Instance, on_gpus: dict[Place, list[int]]) -> float:
    """With the best order on each GPU: most weight a second first."""
    total = 0.0
    for (number, _), tasks in on_gpus.items():
        now = 0.0
        for task in sorted(tasks, key=lambda each: given.seconds[each, number] / given.weights[each]):
            now += given.seconds[task, number]
            total += given.weights[task] * now
    return total


def cheapest(cost: Floats, deadline: float) -> Callable[[Instance, dict[Place, list[int]]], float]:
    def value(given: Instance, on_gpus: dict[Place, list[int]]) -> float:
        if longest(given, on_gpus) > deadline:
            return float("inf")
        return float(sum(cost[task, gpu[0]] for gpu, tasks in on_gpus.items() for task in tasks))

    return value


def _all_assignments(given: Instance, tasks: Ints) -> Iterator[dict[Place, list[int]]]:
    places = [(number, index) for number, count in enumerate(given.counts) for index in range(count)]
    for chosen in product(places, repeat=len(tasks)):
        on_gpus: dict[Place, list[int]] = {}
        for task, gpu in zip(tasks.tolist(), chosen, strict=True):
            on_gpus.setdefault(gpu, []).append(task)
        if all(_allowed(given, gpu, mine) for gpu, mine in on_gpus.items()):
            yield on_gpus


def _allowed(given: Instance, gpu: Place, tasks: list[int]) -> bool:
    sizes = given.memory_bytes[tasks, gpu[0]]
    needed = sizes.sum() if given.resident else sizes.max()
    return bool(np.isfinite(given.seconds[tasks, gpu[0]]).all() and needed <= given.capacity_bytes[gpu[0]])

"""The least makespan of few tasks on few GPUs, by branching: a boolean for each of both does not scale beyond that."""

from __future__ import annotations

import numpy as np

from tonnage.allocate.assign.problem import Instance
from tonnage.allocate.linear import load_solver
from tonnage.allocate.speeds import Ints

MOST_CHOICES = 120  # tasks times GPUs
_MOST_SECONDS = 2.0
_CLOSE = 1e-9


def exact_makespan(instance: Instance, known: float) -> Ints | None:
    """The GPU of each task, numbered through, given that so little is possible; None where that is not found soon."""
    _, csr_matrix = load_solver()
    from scipy.optimize import Bounds, LinearConstraint, milp

    type_of = np.repeat(np.arange(len(instance.counts)), instance.counts)
    task, gpu = np.nonzero(instance.possible[:, type_of] & (instance.seconds[:, type_of] <= known))
    count, numbers = len(task), np.arange(len(task))
    seconds = instance.seconds[task, type_of[gpu]]
    gpus = np.arange(len(type_of))
    longest = np.full(len(type_of), count)  # the last column
    ones = csr_matrix((np.ones(count), (task, numbers)), shape=(instance.size, count + 1))
    ends = csr_matrix(
        (np.append(seconds, -np.ones(len(type_of))), (np.append(gpu, gpus), np.append(numbers, longest))),
        shape=(len(type_of), count + 1),
    )
    rows = [LinearConstraint(ones, 1, 1), LinearConstraint(ends, -np.inf, 0)]
    if instance.resident:
        used = instance.memory_bytes[task, type_of[gpu]] / np.maximum(instance.capacity_bytes[type_of[gpu]], 1)
        rows.append(LinearConstraint(csr_matrix((used, (gpu, numbers)), shape=(len(type_of), count + 1)), -np.inf, 1))
    answer = milp(
        np.append(np.zeros(count), 1.0),
        constraints=rows,
        integrality=np.append(np.ones(count), 0),
        bounds=Bounds(np.zeros(count + 1), np.append(np.ones(count), known)),
        options={"time_limit": _MOST_SECONDS, "mip_rel_gap": _CLOSE},
    )
    if answer.status != 0:
        return None
    found = np.empty(instance.size, dtype=np.int64)
    chosen = answer.x[:count] > 0.5
    found[task[chosen]] = gpu[chosen]
    return found

"""Tasks that run alike: hundreds of tasks are often of a few kinds, and what is true of one is true of its kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tonnage.allocate.problem import Task
from tonnage.allocate.speeds import Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kinds:
    examples: tuple[Task, ...]  # one task of each kind
    numbers: Ints  # the kind of each task

    @property
    def sizes(self) -> Ints:
        return np.bincount(self.numbers, minlength=len(self.examples))


def kinds_of(tasks: Sequence[Task]) -> Kinds:
    """Tasks with the same profiles, on as many GPUs, which all share or do not."""
    found: dict[object, int] = {}
    examples: list[Task] = []
    numbers = np.empty(len(tasks), dtype=np.int64)
    for place, task in enumerate(tasks):
        # With time before the first step, how fast a task is depends on how many follow.
        started = (task.start_seconds, task.steps) if task.start_seconds else ()
        key = (task.gpus, task.may_share, tuple(task.profiles.items()), started)
        if key not in found:
            found[key] = len(examples)
            examples.append(task)
        numbers[place] = found[key]
    return Kinds(examples=tuple(examples), numbers=numbers)

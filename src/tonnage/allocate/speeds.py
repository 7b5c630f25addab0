"""How fast classes of tasks run on types of GPUs, alone and two at a time on the same GPUs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tonnage.errors import DoesNotFit

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskClass:
    """Tasks that run alike: the same program, the same batch size, on as many GPUs."""

    name: str
    gpus: int


@dataclass(frozen=True, kw_only=True, eq=False)  # without slots: what is asked at each event is kept
class SpeedTable:
    """Steps a second. Zero: it does not run there; in pairs, they do not run together."""

    types: tuple[str, ...]
    classes: tuple[TaskClass, ...]
    alone: Floats  # class, type
    paired: Floats  # type, class, class: of the first beside the second

    @cached_property
    def gpus(self) -> Ints:
        """Of each class."""
        return np.array([each.gpus for each in self.classes], dtype=np.int64)

    @cached_property
    def best(self) -> Floats:
        """Of each class, on the type that suits it."""
        return np.asarray(self.alone.max(axis=1))

    def equal_gpus(self, capacity: Ints) -> Floats:
        """Of each class: so many GPUs of the type that suits it make as much as all that are there."""
        best = np.where(self.best > 0, self.best, 1.0)
        return np.asarray(np.maximum((self.alone / best[:, None]) @ capacity, 1.0))

    def for_types(self, names: tuple[str, ...]) -> SpeedTable:
        rows = [self.types.index(name) for name in names]
        return replace(self, types=names, alone=self.alone[:, rows], paired=self.paired[rows])

    def without_pairs(self) -> SpeedTable:
        return replace(self, paired=np.zeros_like(self.paired))

    def with_useful_pairs(self, least: float) -> SpeedTable:
        """Forget pairs that together make less than `least` of what their GPUs make with one of them."""
        with np.errstate(divide="ignore", invalid="ignore"):
            part = np.where(self.alone.T[:, :, None] > 0, self.paired / self.alone.T[:, :, None], 0.0)
        together = part + part.transpose(0, 2, 1)
        useful = (part > 0) & (part.transpose(0, 2, 1) > 0) & (together >= least)
        return replace(self, paired=np.where(useful, self.paired, 0.0))

    def restricted(self, capacity: Ints) -> SpeedTable:
        """Only what the GPUs that are there can hold."""
        room = self.gpus[:, None] <= capacity[None, :]
        return replace(self, alone=self.alone * room, paired=self.paired * room.T[:, :, None])

    def check_runs(self, classes: Ints) -> None:
        """Every class that is used runs somewhere."""
        for number in np.unique(classes):
            if not self.alone[number].any():
                each = self.classes[number]
                raise DoesNotFit(
                    f"{each.name} on {each.gpus} GPUs runs on none of {', '.join(self.types)}",
                    "add GPUs of a type that has a speed for it, or more of one type",
                )

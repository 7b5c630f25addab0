"""Small tables of speeds: three types of GPU, classes on one to eight of them, pairs on the same GPUs."""

import numpy as np

from tonnage.allocate.queue import Queue
from tonnage.allocate.simulate.jobs import Jobs
from tonnage.allocate.speeds import SpeedTable, TaskClass


def table(pairs: bool = True) -> SpeedTable:
    """`wide` gains much from a v100 and `narrow` little; two tasks on the same GPUs each run at 0.7 of their speed."""
    classes = tuple(TaskClass(name=name, gpus=gpus) for gpus in (1, 2, 4, 8) for name in ("wide", "narrow"))
    gpus = np.array([each.gpus for each in classes])
    alone = np.where([[each.name == "wide"] for each in classes], [[10.0, 5.0, 1.0]], [[4.0, 3.0, 2.0]]) * gpus[:, None]
    together = gpus[:, None] == gpus[None, :]
    paired = 0.7 * alone.T[:, :, None] * together * (1.0 if pairs else 0.0)
    return SpeedTable(types=("v100", "p100", "k80"), classes=classes, alone=alone, paired=paired)


def queue(
    speeds: SpeedTable, capacity: list[int], classes: list[int], steps: list[float], crowding: float = 0.5
) -> Queue:
    """Tasks that have just arrived."""
    count = len(classes)
    return Queue(
        table=speeds,
        capacity=np.array(capacity),
        classes=np.array(classes),
        left_steps=np.array(steps),
        made_steps=np.zeros(count),
        weights=np.ones(count),
        age_seconds=np.zeros(count),
        crowding=crowding,
        places=np.full(count, -1),
        partners=np.full(count, -1),
        efficiency=np.ones((count, len(capacity))),
    )


def jobs(classes: list[int], steps: list[float], arrivals: list[float] | None = None) -> Jobs:
    return Jobs(
        classes=np.array(classes),
        steps=np.array(steps),
        arrival_seconds=np.array(arrivals or [0.0] * len(classes)),
        weights=np.ones(len(classes)),
    )

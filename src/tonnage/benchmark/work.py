"""The order in which a campaign's points and layers are measured, and what each is called."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TypeAlias

from tonnage.benchmark.campaign import Campaign, points
from tonnage.benchmark.layers.layer import Layer
from tonnage.benchmark.results import Job
from tonnage.benchmark.workloads.point import Point

Batch: TypeAlias = tuple[Job, ...]  # one point, or layers that share a profile

LAYERS_AT_ONCE = 40  # starting and reading a profile takes a second; so it is shared
_LEAST_BATCHES = 8


def arrange(points: Sequence[Point], layers: Sequence[Layer]) -> list[Batch]:
    """Points, with batches of layers spread evenly among them: every beginning has its share of both."""
    size = min(max(ceil(len(layers) / _LEAST_BATCHES), 1), LAYERS_AT_ONCE)
    batches: list[Batch] = [tuple(layers[start : start + size]) for start in range(0, len(layers), size)]
    singles: list[Batch] = [(point,) for point in points]
    places = [(index / len(group), rank, batch) for rank, group in enumerate((singles, batches))
              for index, batch in enumerate(group)]  # fmt: skip
    return [batch for _, _, batch in sorted(places, key=lambda place: place[:2])]


def all_jobs(campaign: Campaign) -> list[Job]:
    """Every point and layer, known or not."""
    return [*points(campaign), *campaign.layers]


def in_words(job: Job) -> str:
    """What is being measured, for people."""
    if isinstance(job, Point):
        return f"{job.family} {job.mode}, batch {job.batch}, {job.precision}"
    return f"layer {job.kind}, {job.dtype}"


def in_full(job: Job) -> str:
    """In words, with all its numbers."""
    numbers = job.structure if isinstance(job, Point) else job.numbers
    conditions = [job.optimizer, job.memory_format] if isinstance(job, Point) else []
    return ", ".join(
        [in_words(job), *filter(None, conditions), *(f"{name} {value}" for name, value in numbers.items())]
    )

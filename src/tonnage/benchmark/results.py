"""What comes out of measuring, also of what could not be measured. Nothing here needs torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple, TypeAlias

from tonnage.benchmark.layers.layer import Layer
from tonnage.benchmark.workloads.point import Point
from tonnage.benchmark.workloads.registry import find_family
from tonnage.store.rows import HostRow, KernelRow, Measurement, Status

Job: TypeAlias = Point | Layer

_MESSAGE_LENGTH = 300


class Measured(NamedTuple):
    """A measurement with its rows for each kernel and operator."""

    measurement: Measurement
    kernels: Sequence[KernelRow] = ()
    hosts: Sequence[HostRow] = ()


def blank(job: Job, campaign: str) -> Measurement:
    """The measurement of a point or a layer, before anything of it is known."""
    return _blank_point(job, campaign) if isinstance(job, Point) else _blank_layer(job, campaign)


def unsuccessful(job: Job, campaign: str, status: Status, message: str) -> Measured:
    """A measurement that only says what went wrong, in one line."""
    line = " ".join(message.split())
    shown = line if len(line) <= _MESSAGE_LENGTH else line[: _MESSAGE_LENGTH - 3] + "..."
    return Measured(replace(blank(job, campaign), status=status, message=shown))


def _blank_point(point: Point, campaign: str) -> Measurement:
    return Measurement(
        key=point.key,
        campaign=campaign,
        family=point.family,
        structure=point.structure,
        batch=point.batch,
        input_shape=find_family(point.family).input_shape(point.structure),
        precision=point.precision,
        settings={"optimizer": point.optimizer, "memory_format": point.memory_format},
        mode=point.mode,
        measured_at=datetime.now(UTC),
    )


def _blank_layer(layer: Layer, campaign: str) -> Measurement:
    return Measurement(
        key=layer.key,
        campaign=campaign,
        family=f"layer:{layer.kind}",
        structure=layer.numbers,
        batch=int(layer.numbers.get("batch", 1)),
        input_shape=(),
        precision=layer.dtype,
        mode="layer",
        measured_at=datetime.now(UTC),
    )

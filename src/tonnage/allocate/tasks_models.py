"""The shape of tasks.yaml."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator, TypeAdapter

from tonnage.hardware.cluster_models import Bytes, Name, Section, quantity
from tonnage.hardware.quantities import parse_duration

# Far beyond all that is run; within them nothing overflows, and the linear programs of the bounds stay solvable.
LEAST_RUN_SECONDS, MOST_RUN_SECONDS = 0.01, 10**9
_MOST_STEPS, _MOST_WATTS = 10**12, 100_000
_EXPONENT = re.compile(r"[+-]?\d+(\.\d*)?[eE][+-]?\d{1,4}")

Duration = Annotated[float, quantity(parse_duration), Field(ge=0, le=MOST_RUN_SECONDS)]


def _as_list(value: object) -> object:
    """One name may stand for a list of one."""
    return [value] if isinstance(value, str) else value


def _with_exponent(value: object) -> object:
    """YAML takes `1e6`, which has neither a point nor a sign, for text."""
    return float(value) if isinstance(value, str) and _EXPONENT.fullmatch(value) else value


def _one_or_by_model(kind: Any) -> PlainValidator:
    """One value for all models of GPU, or one for each. Unlike a union, it complains of what was written alone."""
    one, by_model = TypeAdapter[Any](kind), TypeAdapter[Any](dict[str, kind])
    return PlainValidator(
        lambda value: (by_model if isinstance(value, dict) else one).validate_python(value, strict=True)
    )


Names = Annotated[list[str], BeforeValidator(_as_list)]
Number = Annotated[float, BeforeValidator(_with_exponent)]
Speed = Annotated[Number, Field(ge=1e-9, le=10**9)]
Steps = Annotated[Number, Field(gt=0, le=_MOST_STEPS)]
Watts = Annotated[Number, Field(ge=0, le=_MOST_WATTS)]


class TaskSection(Section):
    """One task, or `count` equal ones."""

    name: Name = Field(description="With a count above 1 the tasks are called NAME-0, NAME-1, ...")
    count: int = Field(1, ge=1, le=1_000_000, description="How many equal tasks.")
    program: str | None = Field(None, description="A script, module:function, an ONNX file or a saved trace.")
    arguments: list[str] = Field([], description="The script's own arguments.")
    command: list[str] = Field([], description="What is run, where it is not the program as it stands; needs `speeds`.")
    cpus: float = Field(1.0, gt=0, le=100_000, description="CPU cores of the job.")
    main_memory: Bytes = Field(4 << 30, description="Main memory of the job.", validate_default=False)
    requeue: bool = Field(True, description="Started again, where it is killed or its node is lost.")
    steps: Steps | None = Field(None, description="Steps of the whole run.")
    epochs: Steps | None = Field(None, description="Instead: epochs, as the data loader has them.")
    speeds: dict[str, Speed] | None = Field(
        None, min_length=1, description="Steps a second by GPU, where they are known."
    )
    memory: Annotated[int | dict[str, int] | None, _one_or_by_model(Bytes)] = Field(
        None, description="On each GPU, one for all or by GPU. With `speeds` and without it, the task shares no GPU."
    )
    memory_error: float = Field(0.0, ge=0, le=1, description="Standard deviation of that memory, as a part of it.")
    busy: float = Field(1.0, gt=0, le=1, description="Part of the time in which it keeps a GPU busy.")
    watts: Annotated[float | dict[str, float], _one_or_by_model(Watts)] = Field(
        0.0, description="Of each GPU while it runs, one for all or by GPU."
    )
    gpus: int = Field(1, ge=1, le=4096, description="GPUs of one model, all at once.")
    shard: Literal["ddp", "zero1", "zero2", "zero3"] = Field("ddp", description="How several GPUs share the work.")
    gpu: Names = Field([], description="It runs on these models alone.")
    nodes: Names = Field([], description="It runs on these nodes alone.")
    pin: Names = Field([], description="The very GPUs, as NODE/gpuINDEX.")
    near: Literal["island", "node", "rack"] | None = Field(
        None, description="Its GPUs are in one of those, if possible."
    )
    share: bool = Field(True, description="Other tasks may use the same GPU at the same time.")
    priority: Number = Field(1.0, ge=1e-6, le=10**6, description="How much its completion counts.")
    deadline: Duration | None = Field(None, description="When it should be done, from now.")
    release: Duration = Field(0.0, description="It cannot start before, from now.")
    start: Duration = Field(0.0, description="Before its first step, whenever it starts: loading, restoring.")
    checkpoint: Annotated[Duration, Field(gt=0)] | None = Field(
        None, description="Time between checkpoints; with none, all is lost where its node is."
    )
    after: Names = Field([], description="Tasks that must be over before it starts; NAME alone for all of a count.")


class TasksFile(Section):
    """What is to be run."""

    tasks: list[TaskSection] = Field(min_length=1)
    risk: Number = Field(0.01, ge=1e-9, le=0.5, description="Probability that tasks on one GPU exceed its memory.")
    most_together: int = Field(2, ge=1, le=64, description="Tasks on one GPU at a time.")

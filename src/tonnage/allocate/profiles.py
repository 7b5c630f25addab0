"""From what is known of a task, or estimated of its program, to its profile on each model of GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import NormalDist

from tonnage.allocate.problem import Profile, Task
from tonnage.allocate.tasks_file import names_of
from tonnage.allocate.tasks_models import TaskSection
from tonnage.errors import TonnageError, UsageError
from tonnage.estimate.estimate import Estimate, Interval, Report
from tonnage.program.trace import Category
from tonnage.units import format_bytes

_TOO_LITTLE_TIME = 1e-9
_PERSISTENT = (Category.CONTEXT, Category.PARAMETERS, Category.OPTIMIZER_STATE)


def tasks_of(section: TaskSection, models: Sequence[str], report: Report | TonnageError | None) -> Iterator[Task]:
    """`report` is the estimate of its program on the models of the cluster, where it has one, or why there is none."""
    allowed = [gpu for gpu in models if not section.gpu or gpu in section.gpu]
    profiles, refused = _known(section, allowed) if section.speeds is not None else _estimated(section, allowed, report)
    refused |= {gpu: "the task does not allow it" for gpu in models if gpu not in allowed}
    steps = section.steps if section.steps is not None else _steps(section, report)
    for name in names_of(section):
        yield Task(
            name=name,
            steps=steps,
            profiles=profiles,
            refused=refused,
            gpus=section.gpus,
            weight=section.priority,
            deadline_seconds=section.deadline,
            release_seconds=section.release,
            start_seconds=section.start,
            checkpoint_seconds=section.checkpoint,
            after=tuple(section.after),
            pinned=tuple(section.pin),
            nodes=tuple(section.nodes),
            near=section.near or "",
            may_share=section.share,
        )


def _known(section: TaskSection, models: Sequence[str]) -> tuple[dict[str, Profile], dict[str, str]]:
    assert section.speeds is not None
    profiles = {}
    for gpu in models:
        if gpu in section.speeds:
            memory = _at(section.memory, gpu) or 0
            profiles[gpu] = Profile(
                step_seconds=1.0 / section.speeds[gpu],
                memory_bytes=int(memory),
                memory_deviation_bytes=memory * section.memory_error,
                watts=_at(section.watts, gpu) or 0.0,
                busy=section.busy,
            )
    return profiles, {gpu: "no speed is given" for gpu in models if gpu not in profiles}


def _at(value: float | Mapping[str, float] | None, gpu: str) -> float | None:
    return value.get(gpu) if isinstance(value, Mapping) else value


def _estimated(
    section: TaskSection, models: Sequence[str], report: Report | TonnageError | None
) -> tuple[dict[str, Profile], dict[str, str]]:
    assert report is not None
    if isinstance(report, TonnageError):
        return {}, dict.fromkeys(models, report.message)
    found = {estimate.gpu: estimate for estimate in report.estimates if estimate.gpu_count == section.gpus}
    profiles: dict[str, Profile] = {}
    refused: dict[str, str] = {}
    for gpu in models:
        estimate = found.get(gpu)
        if estimate is None or estimate.time is None:
            refused[gpu] = "nothing was estimated for it"
        elif not estimate.fits:
            refused[gpu] = (
                f"needs {format_bytes(estimate.device_bytes.value)}, {gpu} has {format_bytes(estimate.usable_bytes)}"
            )
        else:
            profiles[gpu] = profile_of(estimate)
    return profiles, refused


def profile_of(estimate: Estimate) -> Profile:
    time = estimate.time
    assert time is not None
    memory = estimate.device_bytes
    return Profile(
        step_seconds=max(time.step_seconds.value, _TOO_LITTLE_TIME),
        memory_bytes=int(memory.value),
        memory_deviation_bytes=deviation_bytes(memory, estimate.coverage),
        persistent_bytes=sum(estimate.categories.get(category.label, 0) for category in _PERSISTENT),
        batch_bytes=estimate.h2d_bytes_step,
        copy_seconds=time.h2d_seconds.value + time.d2h_seconds.value,
        watts=time.power_watts.value / estimate.gpu_count,
        busy=max(time.utilisation, 0.01),
        bandwidth=time.bandwidth_share,
        basis=time.basis,
    )


def deviation_bytes(memory: Interval, coverage: float) -> float:
    """The upper bound is exceeded as often as the coverage leaves on one side."""
    return (memory.high - memory.value) / NormalDist().inv_cdf(0.5 + coverage / 2)


def _steps(section: TaskSection, report: Report | TonnageError | None) -> float:
    assert section.epochs is not None
    if not isinstance(report, Report):
        return 1.0  # it is not placed anyway
    if not report.epoch_steps:
        raise UsageError(
            f"how many steps an epoch of {section.name} has is not known: its program has no data loader that says so",
            "give `steps` instead of `epochs`",
        )
    return section.epochs * report.epoch_steps

"""Small problems for tests of allocation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from tonnage.allocate.problem import Device, Problem, Profile, Task

GIB = 1 << 30
MODELS = {"small": (16, 0.5), "middle": (24, 1.0), "large": (80, 3.0)}


def devices(**counts: int) -> tuple[Device, ...]:
    """So many GPUs of each model, two in a node."""
    return tuple(
        Device(
            place=f"{model}{number // 2}/gpu{number % 2}",
            gpu=model,
            memory_bytes=MODELS[model][0] * GIB,
            node=f"{model}{number // 2}",
            island=f"{model}{number // 2}",
            price_usd_hour=MODELS[model][1],
        )
        for model, count in counts.items()
        for number in range(count)
    )


def task(
    name: str, seconds: float | Mapping[str, float], *, memory_gib: float = 1.0, busy: float = 1.0, **more: Any
) -> Task:
    """A task of a hundred steps."""
    by_model = dict.fromkeys(MODELS, seconds) if isinstance(seconds, float | int) else seconds
    profiles = {
        gpu: Profile(
            step_seconds=each / 100,
            memory_bytes=int(memory_gib * GIB),
            watts=100.0,
            busy=busy,
            memory_deviation_bytes=0.0,
        )
        for gpu, each in by_model.items()
    }
    return Task(name=name, steps=100, profiles=profiles, **more)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    counts = {model: draw(st.integers(0, 3)) for model in MODELS}
    counts["small"] = max(counts["small"], 1)
    tasks = [_draw_task(draw, number) for number in range(draw(st.integers(1, 8)))]
    return Problem(devices=devices(**counts), tasks=tuple(tasks), most_together=draw(st.integers(1, 3)))


def _draw_task(draw: st.DrawFn, number: int) -> Task:
    models = draw(st.sets(st.sampled_from(sorted(MODELS)), min_size=1))
    return task(
        f"t{number}",
        {model: draw(st.floats(1.0, 1000.0)) for model in sorted(models)},
        memory_gib=draw(st.floats(0.5, 30.0)),
        busy=draw(st.floats(0.1, 1.0)),
        gpus=draw(st.sampled_from([1, 1, 1, 2, 3])),
        weight=draw(st.sampled_from([1.0, 1.0, 5.0])),
        deadline_seconds=draw(st.none() | st.floats(1.0, 2000.0)),
        release_seconds=draw(st.sampled_from([0.0, 0.0, 100.0])),
        start_seconds=draw(st.sampled_from([0.0, 0.0, 30.0])),
        after=tuple(f"t{other}" for other in draw(st.sets(st.integers(0, number - 1), max_size=2))) if number else (),
        may_share=draw(st.booleans()),
        near=draw(st.sampled_from(["", "node"])),
    )

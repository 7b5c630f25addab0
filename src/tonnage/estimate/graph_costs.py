"""Seconds of each operation of a graph on a kind of device, from a Trace whose modules are the operations.

On a GPU time passes from the end of one call to the end of the next, as in an estimate of the whole step: waiting for the
host counts to the operation that waits, and the parts add up to the whole. Forward, backward and update are timed each by
itself, since in a pipeline none of them hides the launches of the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tonnage.estimate.step import Step, last_step
from tonnage.estimate.step_time import StepTime, StepTimer
from tonnage.estimate.time_model import TimeModel
from tonnage.estimate.timeline import Floats, simulate
from tonnage.hardware import Gpu
from tonnage.program.trace import Phase, Trace

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Seconds on one kind of device, by operation; what is missing takes none."""

    forward_seconds: Mapping[str, float]
    backward_seconds: Mapping[str, float] = field(default_factory=dict)
    update_seconds: float = 0.0  # of the optimizer, for all weights together


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    """A CPU on which nothing may be run: an operator takes as long as its arithmetic or its bytes, and a call.

    The figures are those of a few cores of a server; what is twice as fast has twice the speed.
    """

    flops_second: float = 100e9
    bytes_second: float = 20e9
    call_seconds: float = 5e-6


def gpu_costs(trace: Trace, gpus: Sequence[Gpu], model: TimeModel) -> dict[str, Costs]:
    """Of the last step, on each GPU by its name."""
    step = last_step(trace)
    times = StepTimer(step, model).on_each(gpus)
    return {gpu.name: _costs(trace, step, _passed(step, time)) for gpu, time in zip(gpus, times, strict=True)}


def processor_costs(trace: Trace, processor: Processor) -> Costs:
    """Of the last step on a CPU, by its arithmetic and its bytes."""
    step = last_step(trace)
    works = np.maximum(step.works.operations / processor.flops_second, step.works.bytes / processor.bytes_second)
    return _costs(trace, step, (step.by_operator(works) + processor.call_seconds)[step.operator])


def _passed(step: Step, time: StepTime) -> Floats:
    """Of each call: from the end of the call before it in its pass to its own."""
    seconds = np.zeros(len(step.phase))
    for chosen in _passes(step):
        never = np.zeros(int(chosen.sum()), dtype=np.bool_)
        ended = simulate(time.launch_seconds[chosen], time.device_seconds[chosen], never).ended
        seconds[chosen] = np.diff(np.maximum.accumulate(np.concatenate([[0.0], ended])))
    return seconds


def _passes(step: Step) -> tuple[Flags, Flags, Flags]:
    """The calls of the forward pass, of the backward pass and of the optimizer."""
    is_backward, is_update = step.phase == Phase.BACKWARD, step.phase == Phase.OPTIMIZER
    return np.asarray(~is_backward & ~is_update), np.asarray(is_backward), np.asarray(is_update)


def _costs(trace: Trace, step: Step, seconds: Floats) -> Costs:
    is_forward, is_backward, is_update = _passes(step)
    return Costs(
        forward_seconds=_by_module(trace, step, seconds * is_forward),
        backward_seconds=_by_module(trace, step, seconds * is_backward),
        update_seconds=float(seconds[is_update].sum()),
    )


def _by_module(trace: Trace, step: Step, seconds: Floats) -> dict[str, float]:
    sums = np.bincount(step.module, weights=seconds, minlength=len(trace.modules)).tolist()
    return {name: total for name, total in zip(trace.modules, sums, strict=True) if total}

"""Time, power, energy and cost of a program on a GPU, with bounds and the basis that they stand on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tonnage.estimate.estimate import Interval, TimeEstimate
from tonnage.estimate.step_time import StepTime, StepTimer
from tonnage.estimate.time_model import TimeModel
from tonnage.hardware import Gpu

# A step in which the GPU works for less than this share is waiting for something else.
_BUSY_SHARE = 0.8
_MEASURED_SHARE = 0.95


def estimate_time(timer: StepTimer, gpu: Gpu, *, epoch_steps: int = 0) -> TimeEstimate | None:
    """None for a program that does nothing on a GPU."""
    return next(estimate_times(timer, [gpu], epoch_steps=epoch_steps))


def estimate_times(timer: StepTimer, gpus: Sequence[Gpu], *, epoch_steps: int = 0) -> Iterator[TimeEstimate | None]:
    """One for each GPU."""
    if len(timer.step.operator) == 0:
        yield from [None] * len(gpus)
        return
    for gpu, times in zip(gpus, timer.on_each(gpus), strict=True):
        yield describe_time(times, gpu, timer.model, epoch_steps=epoch_steps)


def describe_time(times: StepTime, gpu: Gpu, model: TimeModel, *, epoch_steps: int = 0) -> TimeEstimate:
    basis = basis_of(times, gpu, model)

    def around(value: float, quantity: str) -> Interval:
        return model.spreads.around(value, basis, quantity)

    step_seconds = around(times.step_seconds, "step_seconds")
    utilisation = min(times.busy_seconds / times.step_seconds, 1.0) if times.step_seconds else 0.0
    streaming_seconds = times.moved_bytes / gpu.bandwidth_bytes_second
    price = gpu.price_usd_hour
    return TimeEstimate(
        basis=basis,
        bound_by=bound_by(times),
        step_seconds=step_seconds,
        forward_seconds=around(times.forward_seconds, "forward_seconds"),
        backward_seconds=around(times.backward_seconds, "backward_seconds"),
        optimizer_seconds=around(times.optimizer_seconds, "optimizer_seconds"),
        h2d_seconds=around(times.h2d_seconds, "h2d_seconds"),
        d2h_seconds=around(times.d2h_seconds, "d2h_seconds"),
        power_watts=_capped(around(times.power_watts, "power_watts"), gpu.tdp_watts),
        energy_joules_step=around(times.energy_joules, "energy_joules_step"),
        utilisation=utilisation,
        # What stays in the cache moves faster than the memory could.
        bandwidth_share=min(streaming_seconds / times.step_seconds, utilisation) if times.step_seconds else 0.0,
        epoch_seconds=times_of(step_seconds, epoch_steps) if epoch_steps else None,
        cost_usd_hour=Interval(price, price, price) if price is not None else None,
    )


def basis_of(times: StepTime, gpu: Gpu, model: TimeModel) -> str:
    """`measured` if nearly all of the step's kernels were measured with these very shapes."""
    if times.measured_share >= _MEASURED_SHARE:
        return "measured"
    return "calibrated" if model.kernels.is_calibrated(gpu) else "specification"


def bound_by(times: StepTime) -> str:
    """What the step waits for most."""
    copied = times.h2d_seconds + times.d2h_seconds
    if copied > 0.5 * times.step_seconds:
        return "copies"
    return "GPU" if times.busy_seconds >= _BUSY_SHARE * times.step_seconds else "host"


def times_of(interval: Interval, count: float) -> Interval:
    return Interval(interval.value * count, interval.low * count, interval.high * count)


def _capped(interval: Interval, most: float) -> Interval:
    return Interval(*(min(v, most) for v in (interval.value, interval.low, interval.high)))

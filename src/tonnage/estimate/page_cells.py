"""The columns of the report's table of GPUs, and what stands in their cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tonnage.estimate.batches import format_batch
from tonnage.estimate.estimate import Estimate, Interval, OutOfMemoryMoment, TimeEstimate, operation
from tonnage.estimate.page_scale import Scale, scale_of, whisker
from tonnage.estimate.page_text import (
    WAITS,
    dollars,
    duration,
    duration_range,
    epoch_cost,
    escape,
    joules,
    span_of,
    thousand_steps_cost,
    watts,
    words,
)
from tonnage.units import format_bytes, format_usd

BAR_LIMIT = 0.8  # where on a bar the usable memory ends; what is beyond does not fit
BASES = {
    "measured": "taken from real runs on this GPU model",
    "calibrated": "computed, with constants measured on this GPU model",
    "specification": "computed from the published properties of this GPU model; nothing was measured on it",
}
NOTHING = "–", float("inf")

Content = tuple[str, float | None]  # what is shown, and what the column is sorted by: the text itself if None


@dataclass(frozen=True, slots=True)
class Column:
    """`kind` are its classes: how it is aligned, whether it is about memory or time, and its own name, last."""

    head: str
    kind: str
    content: Callable[[Estimate], Content]

    def cell(self, estimate: Estimate) -> str:
        text, key = self.content(estimate)
        # What is not known comes last.
        number = "" if key is None else f' data-sort="{min(key, 1e300):.9g}"'
        kind = self.kind if text != NOTHING[0] else f"{self.kind} unknown"
        return f'<td role="cell" class="{kind}"{number}>{text}</td>'


def columns_of(estimates: Sequence[Estimate]) -> list[Column]:
    """The columns that have something to say of at least one GPU."""
    times = [estimate.time for estimate in estimates if estimate.time]
    detail = "detail " if times else ""
    columns = [
        Column("usable", f"number memory {detail}usable", lambda e: (format_bytes(e.usable_bytes), e.usable_bytes)),
        Column("needs", "number memory need", lambda e: (interval_text(e.device_bytes), e.device_bytes.value)),
        Column("share of usable memory", "text memory share", _share),
        Column("verdict", "text verdict", lambda e: (_verdict(e), e.usable_bytes - e.device_bytes.high)),
    ]
    if any(estimate.max_batch is not None for estimate in estimates):
        columns.append(Column("max. batch", "number memory batch", _batch))
    columns.append(Column("basis", f"text memory {detail}basis", lambda e: (badge(e.basis), None)))
    return columns + (_time_columns(times) if times else [])


def _time_columns(times: Sequence[TimeEstimate]) -> list[Column]:
    scale = scale_of([time.step_seconds for time in times])
    columns = [
        _timed("step", "number time step", lambda t: (duration(t.step_seconds.value), t.step_seconds.value)),
        _timed("low to high", "text time interval", lambda t: _step_interval(t, scale)),
        _timed("power", "number time power", lambda t: (watts(t.power_watts), t.power_watts.value)),
        _timed("energy/step", "number time detail energy", _energy),
    ]
    epochs = any(time.epoch_seconds for time in times)
    if epochs:
        columns.append(_timed("epoch", "number time epoch", _epoch))
    if any(time.cost_usd_hour for time in times):
        columns.append(_timed("cost/epoch" if epochs else "cost/hour", "number time cost", _cost))
        columns.append(_timed("cost/1,000 steps", "number time detail steps-cost", _steps_cost))
    columns.append(_timed("bound by", "text time bound", _bound, ("–", None)))
    columns.append(
        _timed("basis of time", "text time detail time-basis", lambda t: (badge(t.basis), None), ("–", None))
    )
    return columns


def _timed(head: str, kind: str, content: Callable[[TimeEstimate], Content], missing: Content = NOTHING) -> Column:
    return Column(head, kind, lambda estimate: content(estimate.time) if estimate.time else missing)


def _share(estimate: Estimate) -> Content:
    need, usable = estimate.device_bytes, estimate.usable_bytes
    return _bar(need, usable), need.value / max(usable, 1)


def _batch(estimate: Estimate) -> Content:
    return format_batch(estimate.max_batch) or "–", estimate.max_batch or 0


def _step_interval(time: TimeEstimate, scale: Scale) -> Content:
    return (
        f"{whisker(time.step_seconds, scale)}<small>{duration_range(time.step_seconds)}</small>",
        time.step_seconds.high,
    )


def _energy(time: TimeEstimate) -> Content:
    return joules(time.energy_joules_step), time.energy_joules_step.value


def _epoch(time: TimeEstimate) -> Content:
    return (duration(time.epoch_seconds.value), time.epoch_seconds.value) if time.epoch_seconds else NOTHING


def _steps_cost(time: TimeEstimate) -> Content:
    cost = thousand_steps_cost(time)
    return (dollars(cost), cost.value) if cost else NOTHING


def _bound(time: TimeEstimate) -> Content:
    waits = escape(WAITS.get(time.bound_by, ""))
    busy = f"<small>{100 * time.utilisation:.0f} % busy</small>"
    return f'<span title="{waits}">{words(time.bound_by)}</span> {busy}', None


def _cost(time: TimeEstimate) -> Content:
    """For an epoch where one is known, else for an hour."""
    if time.cost_usd_hour is None:
        return NOTHING
    hour, epoch = time.cost_usd_hour, epoch_cost(time)
    if epoch is None:
        return format_usd(hour.value), hour.value
    return f"{dollars(epoch)} <small>{format_usd(hour.value)}/h</small>", epoch.value


def badge(basis: str) -> str:
    known = basis if basis in BASES else "other"
    return f'<span class="badge b-{known}">{words(basis)}</span>'


def interval_text(interval: Interval) -> str:
    return f"{format_bytes(interval.value)} <small>{_range(interval)}</small>"


def _range(interval: Interval) -> str:
    low, high = format_bytes(interval.low), format_bytes(interval.high)
    if low == high:
        return "exact" if interval.low == interval.high else "± 0"
    return span_of(low, high)


def _bar(need: Interval, usable: int) -> str:
    value, low, high = (
        min(100.0, 100 * BAR_LIMIT * part / max(usable, 1)) for part in (need.value, need.low, need.high)
    )
    share = need.value / max(usable, 1)
    text = f"{100 * share:.0f} %" if share < 2 else f"{share:.1f}×"
    return (
        f'<span class="bar" aria-hidden="true"><i class="value" style="width:{value:.1f}%"></i>'
        f'<i class="whisker" style="left:{low:.1f}%;width:{high - low:.1f}%"></i><i class="limit"></i></span>'
        f'<span class="ratio">{text}</span>'
    )


def _verdict(estimate: Estimate) -> str:
    if estimate.fits:
        spare = estimate.usable_bytes - estimate.device_bytes.high
        text = f"{format_bytes(spare)} spare" if spare >= 0 else f"{format_bytes(-spare)} over at the upper bound"
        return f"<b>Fits</b> <small>{text}</small>"
    if estimate.out_of_memory is not None:
        return f'<b>Too small</b> <span class="where">{_moment(estimate.out_of_memory)}</span>'
    over = estimate.device_bytes.value - estimate.usable_bytes
    bound = estimate.device_bytes.high - estimate.usable_bytes
    text = f"{format_bytes(over)} over" if over > 0 else f"{format_bytes(max(bound, 0))} over at the upper bound"
    return f"<b>Too small</b> <small>{text}</small>"


def _moment(moment: OutOfMemoryMoment) -> str:
    """Where it fails: `step 1, forward, layer4.2.conv2, asked for 98 MiB`."""
    place = moment.module or operation(moment.operator)
    where = ", ".join(filter(None, (f"step {moment.step}", words(moment.phase), f"<code>{escape(place)}</code>")))
    operator = f"{escape(operation(moment.operator))}, " if moment.module and moment.operator else ""
    return (
        f"{where}, asked for {format_bytes(moment.requested_bytes)} <small>{operator}"
        f"{format_bytes(moment.allocated_bytes)} allocated, {format_bytes(moment.reserved_bytes)} reserved</small>"
    )

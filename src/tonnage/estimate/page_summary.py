"""The top of the report: the answer in a few sentences, and the figures of the GPU that the charts are about."""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.estimate.estimate import Estimate, Report, TimeEstimate
from tonnage.estimate.page_cells import badge, interval_text
from tonnage.estimate.page_text import (
    WAITS,
    dollars,
    duration,
    duration_range,
    epoch_cost,
    escape,
    joules,
    name_of,
    thousand_steps_cost,
    title_of,
    watts,
    words,
)
from tonnage.estimate.page_time import draw_step_bar
from tonnage.units import format_bytes, format_usd


def summarize(report: Report) -> str:
    """The answer in words: on how many GPUs the program fits, on which smallest one, and how long a step takes."""
    return summarize_memory(report) + _speed([estimate for estimate in report.estimates if estimate.fits])


def summarize_memory(report: Report) -> str:
    estimates = report.estimates
    if not estimates:
        return "No GPU was asked for."
    fitting = [estimate for estimate in estimates if estimate.fits]
    if not fitting:
        return _fits_nowhere(report)
    smallest = min(fitting, key=lambda e: (e.usable_bytes, e.device_bytes.value, e.gpu_count))
    share = "all" if len(fitting) == len(estimates) else f"{len(fitting)} of"
    where = (
        f"<strong>Fits on {share} {len(estimates)} {_kinds(estimates)}.</strong> The smallest is {_title(smallest)}:"
    )
    if len(estimates) == 1:
        where = f"<strong>Fits on {_title(smallest)}:</strong>"
    return f"{where} {_need(report, smallest)} of its {format_bytes(smallest.usable_bytes)} of usable memory."


def _fits_nowhere(report: Report) -> str:
    largest = max(report.estimates, key=lambda estimate: estimate.usable_bytes)
    asked = f"{len(report.estimates)} {_kinds(report.estimates)}"
    where = f"<strong>Fits on none of {asked}.</strong> The largest, {_title(largest)}, has"
    if len(report.estimates) == 1:
        where = f"<strong>Does not fit on {_title(largest)}.</strong> It has"
    return f"{where} {format_bytes(largest.usable_bytes)} of usable memory; {_need(report, largest)}."


def _kinds(estimates: Sequence[Estimate]) -> str:
    return "configurations" if any(estimate.gpu_count > 1 for estimate in estimates) else "GPUs"


def _need(report: Report, estimate: Estimate) -> str:
    mode = f"{words(report.mode)} " if report.mode else "the program "
    return f"{mode}needs <strong>{format_bytes(estimate.device_bytes.value)}</strong>"


def _title(estimate: Estimate) -> str:
    return name_of(title_of(estimate))


def _timed(fitting: Sequence[Estimate]) -> list[tuple[Estimate, TimeEstimate]]:
    """Those with a time, the fastest first."""
    timed = [(e, e.time) for e in fitting if e.time is not None and e.time.step_seconds.value > 0]
    return sorted(timed, key=lambda pair: pair[1].step_seconds.value)


def shortest_step(report: Report) -> str:
    timed = _timed([estimate for estimate in report.estimates if estimate.fits])
    return f"<b>{duration(timed[0][1].step_seconds.value)}</b> on {_title(timed[0][0])}" if timed else ""


def _speed(fitting: Sequence[Estimate]) -> str:
    """The shortest step, and the cheapest one where prices are known."""
    timed = _timed(fitting)
    if not timed:
        return ""
    fastest, time = timed[0]
    took = f"<strong>{duration(time.step_seconds.value)}</strong> ({duration_range(time.step_seconds)})"
    if len(fitting) == 1:
        return f" A step takes {took}; {WAITS.get(time.bound_by, 'what bounds it is not known')}."
    priced = [(e, t, cost) for e, t in timed if (cost := epoch_cost(t) or thousand_steps_cost(t))]
    if len(priced) < 2:
        return f" A step is shortest on {_title(fastest)}: {took}."
    cheapest, at, cost = min(priced, key=lambda item: item[2].value)
    unit = "an epoch" if at.epoch_seconds else "1,000 steps"
    return (
        f" A step is shortest on {_title(fastest)}: {took}. Where a price is known, the cheapest is {_title(cheapest)}: "
        f"<strong>{dollars(cost)}</strong> for {unit}."
    )


def reference_of(report: Report) -> Estimate | None:
    """The estimate whose peak is shown: of the GPU of the curve, else the smallest that fits, else the largest."""
    for estimate in report.estimates:
        if report.curve is not None and estimate.gpu == report.curve.gpu:
            return estimate
    by_size = sorted(report.estimates, key=lambda estimate: estimate.usable_bytes)
    return next((estimate for estimate in by_size if estimate.fits), by_size[-1] if by_size else None)


def facts(report: Report) -> str:
    known = [("mode", words(report.mode)), ("batch", "not known" if report.batch is None else f"{report.batch:,}")]
    known += [("parameters", f"{report.parameter_count:,}"), ("steps traced", str(report.steps_traced))]
    estimate = reference_of(report)
    if estimate is None:
        return _cells(known)
    known += _memory_facts(estimate)
    note = f'<p class="note">Figures of memory and time are for {_title(estimate)}.</p>'
    if estimate.time is None:
        return f"{_cells(known)}{note}"
    return f"{_cells(known)}{_cells(_time_facts(estimate.time))}{draw_step_bar(estimate.time)}{note}"


def _cells(known: Sequence[tuple[str, str]]) -> str:
    cells = "".join(f"<div><dt>{name}</dt><dd>{text}</dd></div>" for name, text in known if text)
    return f'<dl class="facts">{cells}</dl>'


def _memory_facts(estimate: Estimate) -> list[tuple[str, str]]:
    return [
        ("written to storage", format_bytes(estimate.storage_bytes)),
        ("peak allocated", interval_text(estimate.peak_allocated_bytes)),
        ("peak reserved", interval_text(estimate.peak_reserved_bytes)),
        ("device memory", interval_text(estimate.device_bytes)),
        ("copied to the GPU", f"{format_bytes(estimate.h2d_bytes_step)} <small>each step</small>"),
        ("copied back", f"{format_bytes(estimate.d2h_bytes_step)} <small>each step</small>"),
    ]


def _time_facts(time: TimeEstimate) -> list[tuple[str, str]]:
    step, epoch, cost = time.step_seconds, time.epoch_seconds, epoch_cost(time)
    hour = f"<small>{format_usd(time.cost_usd_hour.value)} an hour</small>" if time.cost_usd_hour else ""
    steps = thousand_steps_cost(time)
    money = f"{dollars(cost)} an epoch {hour}" if cost else f"{dollars(steps)} for 1,000 steps {hour}" if steps else ""
    return [
        ("time of a step", f"{duration(step.value)} <small>{duration_range(step)}</small> {badge(time.basis)}"),
        ("power", f"{watts(time.power_watts)} <small>{joules(time.energy_joules_step)} a step</small>"),
        ("bound by", f"{words(time.bound_by)} <small>GPU busy for {100 * time.utilisation:.0f} %</small>"),
        ("epoch", f"{duration(epoch.value)} <small>{duration_range(epoch)}</small>" if epoch else ""),
        ("cost", money),
    ]


def step_line(report: Report) -> str:
    """The step of the reference GPU in little room."""
    estimate = reference_of(report)
    if estimate is None or estimate.time is None:
        return ""
    time = estimate.time
    waits = escape(WAITS.get(time.bound_by, ""))
    text = (
        f"A step on {_title(estimate)}: {duration(time.step_seconds.value)}, {watts(time.power_watts)}, "
        f"{joules(time.energy_joules_step)}; {waits} {badge(time.basis)}"
    )
    return f'<p class="note">{text}</p>{draw_step_bar(time)}'

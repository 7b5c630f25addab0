"""GPUs beside each other in the report: time, energy and cost of a step on each, and speed over batch sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from tonnage.estimate.estimate import Estimate, Interval, Report, TimeEstimate
from tonnage.estimate.page_scale import Scale, marks, place, scale_of, whisker
from tonnage.estimate.page_text import (
    dollars,
    duration,
    epoch_cost,
    escape,
    joules,
    thousand_steps_cost,
    title_of,
)

FIRST_ROWS = 20
WIDTH, HEIGHT = 640, 300  # of the chart over batch sizes
_TENTH = 10


@dataclass(frozen=True, slots=True)
class Quantity:
    """Something that GPUs are compared by; the best is the lowest, or the highest."""

    key: str
    title: str
    value: Callable[[TimeEstimate], Interval | None]
    text: Callable[[float], str]
    highest: bool = False


def compare_section(report: Report) -> str:
    timed = [e for e in report.estimates if e.time is not None and e.time.step_seconds.value > 0]
    shown = [e for e in timed if e.fits] or timed
    if len(shown) < 2 and not report.sweep:
        return ""
    charts = [chart for quantity in _quantities(report) if (chart := _chart(quantity, shown))]
    charts += [sweep] if (sweep := _sweep_chart(report)) else []
    if not charts:
        return ""
    choices = "".join(f'<option value="{key}">{title}</option>' for key, title, _ in charts)
    bodies = "".join(
        f'<div class="compared" data-quantity="{key}"><h3>{title}</h3>{body}</div>' for key, title, body in charts
    )
    only = "" if any(e.fits for e in timed) else " It fits on none of them: this is how long it would take."
    return (
        '<section aria-labelledby="compare"><h2 id="compare">GPUs compared</h2>'
        f'<p class="note">GPUs on which the program fits, the best first, on a logarithmic scale.{only}</p>'
        f'<p class="tools scripted" hidden><label for="quantity">Show</label> <select id="quantity">{choices}</select></p>'
        f"{bodies}</section>"
    )


def _quantities(report: Report) -> list[Quantity]:
    batch = report.batch
    quantities = [Quantity("step", "Time of a step", lambda t: t.step_seconds, duration)]
    quantities.append(Quantity("epoch", "Time of an epoch", lambda t: t.epoch_seconds, duration))
    quantities.append(Quantity("energy", "Energy of a step", lambda t: t.energy_joules_step, _joules))
    quantities.append(Quantity("epoch-cost", "Cost of an epoch", epoch_cost, _dollars))
    quantities.append(Quantity("cost", "Cost of 1,000 steps", thousand_steps_cost, _dollars))
    # With several GPUs a step has several batches: then a sample is not the batch-th part of it.
    if batch and all(estimate.gpu_count == 1 for estimate in report.estimates):
        quantities.append(
            Quantity("sample", "Energy of a sample", lambda t: _per(t.energy_joules_step, batch), _joules)
        )
    return quantities


def _per(interval: Interval, count: int) -> Interval:
    return Interval(interval.value / count, interval.low / count, interval.high / count)


def _joules(value: float) -> str:
    return joules(Interval(value, value, value))


def _dollars(value: float) -> str:
    return dollars(Interval(value, value, value))


# -- one row for each GPU -------------------------------------------------------------------------------------------------


def _chart(quantity: Quantity, estimates: Sequence[Estimate]) -> tuple[str, str, str] | None:
    """Name, title and drawing; None where it is known of no GPU."""
    known = [(e, value) for e in estimates if e.time and (value := quantity.value(e.time)) and value.value > 0]
    if not known:
        return None
    known.sort(key=lambda item: item[1].value)
    scale = scale_of([value for _, value in known])
    rows = [_row(estimate, value, scale, quantity) for estimate, value in known]
    first, more = rows[:FIRST_ROWS], rows[FIRST_ROWS:]
    axis = "".join(f'<i style="left:{place(mark, scale):.1f}%">{quantity.text(mark)}</i>' for mark in marks(scale))
    rest = (
        f'<details><summary>{len(more)} more GPUs</summary><ol class="dots">{"".join(more)}</ol></details>'
        if more
        else ""
    )
    body = (
        f'<ol class="dots"><li class="axis" aria-hidden="true"><span></span><span class="scale">{axis}</span></li>'
        f"{''.join(first)}</ol>{rest}"
    )
    return quantity.key, quantity.title, body


def _row(estimate: Estimate, value: Interval, scale: Scale, quantity: Quantity) -> str:
    bounds = f"{quantity.text(value.low)} to {quantity.text(value.high)}"
    return (
        f"<li><b>{escape(title_of(estimate))}</b>{whisker(value, scale)}"
        f"<span>{quantity.text(value.value)} <small>{bounds}</small></span></li>"
    )


# -- speed over batch sizes -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Speed:
    """Samples a second of one GPU, or of several, at one batch size."""

    gpu: str
    batch: int
    samples_second: float


def _speeds(report: Report) -> Iterator[Speed]:
    for at_batch in (report, *report.sweep):
        for estimate in at_batch.estimates:
            time = estimate.time
            if at_batch.batch and time is not None and estimate.fits and time.step_seconds.value > 0:
                samples = at_batch.batch * estimate.gpu_count / time.step_seconds.value
                yield Speed(title_of(estimate), at_batch.batch, samples)


def _sweep_chart(report: Report) -> tuple[str, str, str] | None:
    """A line for each GPU that has at least two batch sizes; one of them is chosen and has its numbers."""
    speeds = sorted({(s.gpu, s.batch): s for s in _speeds(report)}.values(), key=lambda s: (s.gpu, s.batch))
    lines = {gpu: list(group) for gpu, group in groupby(speeds, key=lambda s: s.gpu)}
    lines = {gpu: line for gpu, line in lines.items() if len(line) > 1}
    if not report.sweep or not lines:
        return None
    chosen = report.curve.gpu if report.curve and report.curve.gpu in lines else next(iter(lines))
    shown = [speed for line in lines.values() for speed in line]
    across, up = (_spread([getattr(s, name) for s in shown]) for name in ("batch", "samples_second"))
    options = "".join(
        f'<option value="{number}"{" selected" if gpu == chosen else ""}>{escape(gpu)}</option>'
        for number, gpu in enumerate(lines)
    )
    drawn = "".join(
        f'<g data-gpu="{number}"{" class=" + chr(34) + "chosen" + chr(34) if gpu == chosen else ""}>'
        f"{_line(line, across, up)}</g>"
        for number, (gpu, line) in enumerate(lines.items())
    )
    body = (
        f'<p class="tools scripted" hidden><label for="of-gpu">GPU</label> <select id="of-gpu">{options}</select></p>'
        f'<p class="note">Lines: all GPUs; with numbers: <span id="gpu-chosen">{escape(chosen)}</span>. A line ends where '
        f'the program no longer fits.</p><svg class="speeds" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="Samples a second over batch size">{_grid(shown, across, up)}{drawn}</svg>'
    )
    return "samples", "Samples a second over batch size", body


def _spread(values: Sequence[float]) -> Scale:
    return min(values) / 1.25, max(values) * 1.25


def _point(batch: float, speed: float, across: Scale, up: Scale) -> tuple[float, float]:
    """Room is left for the numbers of the axes."""
    return 60 + (WIDTH - 70) * place(batch, across) / 100, (HEIGHT - 30) * (1 - place(speed, up) / 100)


def _line(line: Sequence[Speed], across: Scale, up: Scale) -> str:
    points = [_point(speed.batch, speed.samples_second, across, up) for speed in line]
    path = "L".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"/><text x="{x:.1f}" y="{y - 9:.1f}">{_count(speed.samples_second)}</text>'
        for (x, y), speed in zip(points, line, strict=True)
    )
    return f'<path d="M{path}"/>{dots}'


def _grid(speeds: Sequence[Speed], across: Scale, up: Scale) -> str:
    low, high = across[0], up[0]
    columns = "".join(
        f'<text class="x" x="{_point(batch, high, across, up)[0]:.1f}" y="{HEIGHT - 10}">{batch:,}</text>'
        for batch in sorted({speed.batch for speed in speeds})
    )
    rows = "".join(
        f'<path class="rule" d="M60,{(y := _point(low, mark, across, up)[1]):.1f}H{WIDTH - 10}"/>'
        f'<text class="y" x="54" y="{y + 4:.1f}">{_count(mark)}</text>'
        for mark in marks(up)
    )
    return f"{rows}{columns}"


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= _TENTH else f"{value:.2g}"

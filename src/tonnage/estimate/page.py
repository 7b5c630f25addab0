"""The report of an estimate as HTML: one page that works offline and on paper, or a fragment for a notebook.

All data stands in the HTML itself; the script only sorts, filters and shows values under the pointer.
"""

from __future__ import annotations

import json
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files
from math import log

from tonnage import __version__
from tonnage.estimate.batches import format_batch
from tonnage.estimate.estimate import Estimate, Interval, OutOfMemoryMoment, Report, operation
from tonnage.estimate.page_charts import (
    category_class,
    curve_data,
    draw_curve,
    draw_treemap,
    escape,
    groups_at_peak,
    percent,
    phase_table,
    series_of,
    shape_words,
    words,
)
from tonnage.units import format_bytes

FRAGMENT_ROWS = 12
BAR_LIMIT = 0.8  # where on a bar the usable memory ends; what is beyond does not fit
BASES = {
    "measured": "taken from real runs on this GPU model",
    "calibrated": "computed, with constants measured on this GPU model",
    "specification": "computed from the published properties of this GPU model; nothing was measured on it",
}


def render_page(report: Report) -> str:
    """A complete document that loads nothing from anywhere."""
    script = _resource("page.js")
    digest = b64encode(sha256(script.encode()).digest()).decode()
    # The policy lets only our own script run, whatever the report's texts contain.
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'"
    return f"""<!DOCTYPE html>
<html lang="en" class="tonnage whole">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="tonnage {__version__}">
<title>{escape(report.program)}: GPU memory</title>
<style>{_resource("page.css")}</style>
</head>
<body>
<a class="skip" href="#gpus">Skip to the GPUs</a>
<header>
<p class="brand"><span>Tonnage estimate</span><button type="button" id="theme" hidden>Dark</button></p>
<h1><code>{escape(report.program)}</code></h1>
<p class="summary">{summarize(report)}</p>
{_facts(report)}
{_warnings(report)}
</header>
<main>
{_curve_section(report)}
{_sweep_section(report)}
{_peak_section(report)}
{_gpu_section(report)}
</main>
{_footer(report)}
<script>{script}</script>
</body>
</html>
"""


def render_fragment(report: Report) -> str:
    """Summary, chart and the GPUs nearest their limit, for the output of a notebook cell."""
    series = series_of(report.curve)
    nearest = sorted(report.estimates, key=_distance_to_limit)[:FRAGMENT_ROWS]
    hidden = len(report.estimates) - len(nearest)
    more = f'<p class="note">The {len(nearest)} GPUs nearest their limit; {hidden} more are not shown.</p>'
    caption = f'<p class="note">Memory in use over time on {_name(series.gpu)}</p>' if series else ""
    return (
        f'<div class="tonnage fragment"><style>{_resource("page.css")}</style>'
        f'<p class="summary">{summarize(report)}</p><p class="note"><code>{escape(report.program)}</code></p>'
        f"{_warnings(report)}{caption}{draw_curve(series) if series else ''}{_gpu_table(nearest)}"
        f"{more if hidden else ''}</div>"
    )


@cache
def _resource(name: str) -> str:
    return files("tonnage.estimate").joinpath(name).read_text(encoding="utf-8")


def summarize(report: Report) -> str:
    """The answer in words: on how many GPUs the program fits, and on which smallest one."""
    estimates = report.estimates
    if not estimates:
        return "No GPU was asked for."
    fitting = [estimate for estimate in estimates if estimate.fits]
    if not fitting:
        largest = max(estimates, key=lambda estimate: estimate.usable_bytes)
        where = f"<strong>Fits on none of {len(estimates)} GPUs.</strong> The largest, {_name(largest.gpu)}, has"
        if len(estimates) == 1:
            where = f"<strong>Does not fit on {_name(largest.gpu)}.</strong> It has"
        return f"{where} {format_bytes(largest.usable_bytes)} of usable memory; {_need(report, largest)}."
    smallest = min(fitting, key=lambda estimate: (estimate.usable_bytes, estimate.device_bytes.value))
    share = "all" if len(fitting) == len(estimates) else f"{len(fitting)} of"
    where = f"<strong>Fits on {share} {len(estimates)} GPUs.</strong> The smallest is {_name(smallest.gpu)}:"
    if len(estimates) == 1:
        where = f"<strong>Fits on {_name(smallest.gpu)}:</strong>"
    return f"{where} {_need(report, smallest)} of its {format_bytes(smallest.usable_bytes)} of usable memory."


def _need(report: Report, estimate: Estimate) -> str:
    mode = f"{words(report.mode)} " if report.mode else "the program "
    return f"{mode}needs <strong>{format_bytes(estimate.device_bytes.value)}</strong>"


def _name(gpu: str) -> str:
    return f'<span class="name">{escape(gpu)}</span>'


def _reference(report: Report) -> Estimate | None:
    """The estimate whose peak is shown: of the GPU of the curve, else the smallest that fits, else the largest."""
    for estimate in report.estimates:
        if report.curve is not None and estimate.gpu == report.curve.gpu:
            return estimate
    by_size = sorted(report.estimates, key=lambda estimate: estimate.usable_bytes)
    return next((estimate for estimate in by_size if estimate.fits), by_size[-1] if by_size else None)


def _facts(report: Report) -> str:
    facts = [("mode", words(report.mode)), ("batch", "not known" if report.batch is None else f"{report.batch:,}")]
    facts += [("parameters", f"{report.parameter_count:,}"), ("steps traced", str(report.steps_traced))]
    estimate = _reference(report)
    if estimate is not None:
        facts += [
            ("written to storage", format_bytes(estimate.storage_bytes)),
            ("peak allocated", _interval(estimate.peak_allocated_bytes)),
            ("peak reserved", _interval(estimate.peak_reserved_bytes)),
            ("device memory", _interval(estimate.device_bytes)),
            ("copied to the GPU", f"{format_bytes(estimate.h2d_bytes_step)} <small>each step</small>"),
            ("copied back", f"{format_bytes(estimate.d2h_bytes_step)} <small>each step</small>"),
        ]
    cells = "".join(f"<div><dt>{name}</dt><dd>{text}</dd></div>" for name, text in facts if text)
    note = f'<p class="note">Memory figures are for {_name(estimate.gpu)}.</p>' if estimate else ""
    return f'<dl class="facts">{cells}</dl>{note}'


def _interval(interval: Interval) -> str:
    return f"{format_bytes(interval.value)} <small>{_range(interval)}</small>"


def _range(interval: Interval) -> str:
    low, high = format_bytes(interval.low), format_bytes(interval.high)
    if low == high:
        return "exact" if interval.low == interval.high else "± 0"
    same_unit = low.split()[-1] == high.split()[-1]
    return f"{low.split()[0] if same_unit else low} to {high}"


def _warnings(report: Report) -> str:
    items = "".join(f"<li>{escape(warning)}</li>" for warning in report.warnings)
    title = "Warning" if len(report.warnings) == 1 else f"{len(report.warnings)} warnings"
    return f'<div class="warnings" role="note"><b>{title}</b><ul>{items}</ul></div>' if items else ""


def _curve_section(report: Report) -> str:
    series = series_of(report.curve)
    if series is None:
        body = '<p class="note">This report holds no memory curve.</p>'
    else:
        body = (
            f'<p class="note">Bytes in use by the program on {_name(series.gpu)}, in the order of events. '
            '<span class="scripted" hidden>Point at the chart, or focus it and use the arrow keys, to read any moment.'
            f"</span></p>{draw_curve(series)}"
            f"<details><summary>Highest memory in each phase, in numbers</summary>{phase_table(series)}</details>"
            f'<script type="application/json" id="curve-data">{curve_data(series)}</script>'
        )
    return f'<section aria-labelledby="over-time"><h2 id="over-time">Memory over time</h2>{body}</section>'


def _peak_section(report: Report) -> str:
    estimate = _reference(report)
    if estimate is None or not groups_at_peak(estimate):
        return ""
    return (
        '<section aria-labelledby="peak"><h2 id="peak">What the peak is made of</h2>'
        f'<p class="note">Each area is memory in use at the peak on {_name(estimate.gpu)}: the largest tensors of each '
        f"category, then its remainder.</p>{draw_treemap(estimate)}"
        '<p class="readout" aria-live="polite" hidden></p>'
        f"<details><summary>The {len(estimate.largest)} largest tensors as a table</summary>"
        f"{_tensor_table(estimate)}</details></section>"
    )


def _tensor_table(estimate: Estimate) -> str:
    total = sum(tile.bytes for tiles in groups_at_peak(estimate).values() for tile in tiles)
    rows = "".join(
        f"<tr><td>{format_bytes(tensor.bytes)}</td><td>{percent(tensor.bytes, total)}</td>"
        f'<td class="text"><i class="swatch {category_class(tensor.category)}"></i>{words(tensor.category)}</td>'
        f'<td class="text path"><code>{escape(tensor.module)}</code></td>'
        f'<td class="text"><code>{escape(operation(tensor.operator))}</code></td>'
        f'<td class="text">{shape_words(tensor.shape)}</td><td class="text">{escape(tensor.dtype)}</td></tr>'
        for tensor in sorted(estimate.largest, key=lambda tensor: -tensor.bytes)
    )
    names = ("category", "module", "operator", "shape", "dtype")
    heads = "".join(f'<th scope="col" class="text">{name}</th>' for name in names)
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Largest tensors at the peak"><table class="plain">'
        f'<thead><tr><th scope="col">memory</th><th scope="col">of peak</th>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _sweep_section(report: Report) -> str:
    """The same program at other batch sizes, where they were asked for."""
    if not report.sweep:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{"–" if other.batch is None else f"{other.batch:,}"}</th>'
        f'<td class="text">{summarize(other)}</td></tr>'
        for other in report.sweep
    )
    return (
        '<section aria-labelledby="batches"><h2 id="batches">Other batch sizes</h2><table class="sweep"><thead><tr>'
        f'<th scope="col">batch</th><th scope="col" class="text">answer</th></tr></thead><tbody>{rows}</tbody></table>'
        "</section>"
    )


def _gpu_section(report: Report) -> str:
    coverages = sorted({estimate.coverage for estimate in report.estimates})
    cover = " or ".join(f"{100 * coverage:.3g} %" for coverage in coverages)
    bases = "".join(
        f"<div><dt>{words(basis)}</dt><dd>{BASES.get(basis, 'see the documentation')}</dd></div>"
        for basis in dict.fromkeys(estimate.basis for estimate in report.estimates)
    )
    explained = (
        f'<p class="note">A bar is the memory needed against what the GPU offers; the whisker is the interval that '
        f"holds the truth with a probability of {cover}. The mark is the end of usable memory. The basis says how a "
        f'figure is known:</p><dl class="bases">{bases}</dl>'
    )
    return (
        '<section aria-labelledby="gpus"><h2 id="gpus" tabindex="-1">GPUs</h2>'
        '<p class="tools" hidden><label for="filter">Filter</label> <input id="filter" type="search" '
        'placeholder="H100, fits, too small …" autocomplete="off"> <span id="shown" role="status"></span></p>'
        f"{_gpu_table(report.estimates)}{explained if report.estimates else ''}</section>"
    )


def _gpu_table(estimates: tuple[Estimate, ...] | list[Estimate]) -> str:
    """The smallest GPU that fits first, then larger ones, then those that do not fit, the nearest first."""
    batches = any(estimate.max_batch is not None for estimate in estimates)
    order = sorted(estimates, key=lambda e: (not e.fits, e.usable_bytes if e.fits else _distance_to_limit(e), e.gpu))
    rows = "".join(_gpu_row(estimate, batches) for estimate in order)
    heads = [("text", "GPU"), ("number", "usable"), ("number", "needs"), ("text", "share of usable memory")]
    heads += [("text", "verdict"), *([("number", "max. batch")] if batches else []), ("text", "basis")]
    cells = "".join(f'<th scope="col" role="columnheader" class="{kind}">{name}</th>' for kind, name in heads)
    return (
        '<table class="gpus" role="table"><thead role="rowgroup">'
        f'<tr role="row">{cells}</tr></thead><tbody role="rowgroup">{rows}</tbody></table>'
    )


def _gpu_row(estimate: Estimate, batches: bool) -> str:
    need, usable = estimate.device_bytes, estimate.usable_bytes
    batch = format_batch(estimate.max_batch) or "–"
    cells = [
        f'<th scope="row" role="rowheader" class="gpu">{escape(estimate.gpu)}</th>',
        f'<td role="cell" class="usable number" data-sort="{usable}">{format_bytes(usable)}</td>',
        f'<td role="cell" class="need number" data-sort="{need.value}">{_interval(need)}</td>',
        f'<td role="cell" class="share" data-sort="{need.value / max(usable, 1):.6f}">{_bar(need, usable)}</td>',
        f'<td role="cell" class="verdict" data-sort="{usable - need.high}">{_verdict(estimate)}</td>',
        f'<td role="cell" class="batch number" data-sort="{estimate.max_batch or 0}">{batch}</td>' if batches else "",
        f'<td role="cell" class="basis">{words(estimate.basis)}</td>',
    ]
    return f'<tr role="row" class="{"fits" if estimate.fits else "small"}">{"".join(cells)}</tr>'


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
        return f"<b>Too small</b> {_moment(estimate.out_of_memory)}"
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


def _distance_to_limit(estimate: Estimate) -> float:
    """How far, in either direction and by ratio, the upper bound is from the usable memory."""
    return abs(log(max(estimate.usable_bytes, 1) / max(estimate.device_bytes.high, 1)))


def _footer(report: Report) -> str:
    steps = "1 step" if report.steps_traced == 1 else f"{report.steps_traced} steps"
    followed = f"for {steps}" if report.steps_traced else "without a complete step"
    details = "".join(
        f"<div><dt>{words(str(name))}</dt><dd>{_detail(value)}</dd></div>" for name, value in report.details.items()
    )
    more = f'<details><summary>Details of the estimate</summary><dl class="bases">{details}</dl></details>'
    return (
        f"<footer>{more if details else ''}<p>How the numbers were made: the program was followed {followed} without a "
        "GPU, and every allocation and release was recorded. For each GPU these requests, with the workspaces its "
        "libraries need there, were replayed through a simulation of PyTorch’s caching allocator. Allocated is what "
        "tensors hold, reserved is what the allocator holds, and device memory adds the CUDA context and loaded "
        f"libraries.</p><p>Made by tonnage {__version__}.</p></footer>"
    )


def _detail(value: object) -> str:
    return escape(value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False))

"""The report of an estimate as HTML: one page that works offline and on paper, or a fragment for a notebook.

All data stands in the HTML itself; the script only sorts, filters and shows values under the pointer.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files

from tonnage import __version__
from tonnage.estimate.estimate import Estimate, Report, operation
from tonnage.estimate.page_charts import (
    category_class,
    curve_data,
    draw_curve,
    draw_treemap,
    groups_at_peak,
    phase_table,
    series_of,
    shape_words,
)
from tonnage.estimate.page_compare import compare_section
from tonnage.estimate.page_flame import flame_section
from tonnage.estimate.page_gpus import distance_to_limit, gpu_section, gpu_table
from tonnage.estimate.page_summary import facts, reference_of, shortest_step, step_line, summarize, summarize_memory
from tonnage.estimate.page_text import escape, name_of, page_head, percent, policy_for, words
from tonnage.estimate.page_time import timeline_section
from tonnage.units import format_bytes

FRAGMENT_ROWS = 12
STYLES = "page.css", "page_time.css"
SCRIPTS = "page.js", "page_time.js", "page_flame.js"


def render_page(report: Report) -> str:
    """A complete document that loads nothing from anywhere."""
    script = _resources(SCRIPTS)
    head = page_head(f"{escape(report.program)}: what it needs on GPUs", policy_for(script), _resources(STYLES))
    return f"""{head}<body>
<a class="skip" href="#gpus">Skip to the GPUs</a>
<header>
<p class="brand"><span>Tonnage estimate</span><button type="button" id="theme" hidden>Dark</button></p>
<h1><code>{escape(report.program)}</code></h1>
<p class="summary">{summarize(report)}</p>
{facts(report)}
{_warnings(report)}
</header>
<main>
{_curve_section(report)}
{_peak_section(report)}
{timeline_section(report.step)}
{flame_section(report.step)}
{compare_section(report)}
{_sweep_section(report)}
{gpu_section(report)}
</main>
{_footer(report)}
<script>{script}</script>
</body>
</html>
"""


def render_fragment(report: Report) -> str:
    """Summary, step, chart and the GPUs nearest their limit, for the output of a notebook cell."""
    series = series_of(report.curve)
    nearest = sorted(report.estimates, key=distance_to_limit)[:FRAGMENT_ROWS]
    hidden = len(report.estimates) - len(nearest)
    more = f'<p class="note">The {len(nearest)} GPUs nearest their limit; {hidden} more are not shown.</p>'
    caption = f'<p class="note">Memory in use over time on {name_of(series.gpu)}</p>' if series else ""
    return (
        f'<div class="tonnage fragment"><style>{_resources(STYLES)}</style>'
        f'<p class="summary">{summarize(report)}</p><p class="note"><code>{escape(report.program)}</code></p>'
        f"{_warnings(report)}{step_line(report)}{caption}{draw_curve(series) if series else ''}{gpu_table(nearest)}"
        f"{more if hidden else ''}</div>"
    )


@cache
def _resources(names: tuple[str, ...]) -> str:
    """The files one after the other; the policy of the page names the digest of all of them together."""
    folder = files("tonnage.estimate")
    return "".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names)


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
            f'<p class="note">Bytes in use by the program on {name_of(series.gpu)}, in the order of events. '
            '<span class="scripted" hidden>Point at the chart, or focus it and use the arrow keys, to read any moment.'
            f"</span></p>{draw_curve(series)}"
            f"<details><summary>Highest memory in each phase, in numbers</summary>{phase_table(series)}</details>"
            f'<script type="application/json" id="curve-data">{curve_data(series)}</script>'
        )
    return f'<section aria-labelledby="over-time"><h2 id="over-time">Memory over time</h2>{body}</section>'


def _peak_section(report: Report) -> str:
    estimate = reference_of(report)
    if estimate is None or not groups_at_peak(estimate):
        return ""
    return (
        '<section aria-labelledby="peak"><h2 id="peak">What the peak is made of</h2>'
        f'<p class="note">Each area is memory in use at the peak on {name_of(estimate.gpu)}: the largest tensors of each '
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
    timed = any(shortest_step(other) for other in report.sweep)
    head = '<th scope="col" class="text">shortest step</th>' if timed else ""
    rows = "".join(
        f'<tr><th scope="row">{"–" if other.batch is None else f"{other.batch:,}"}</th>'
        f'<td class="text">{summarize_memory(other)}</td>'
        f"{f'<td class=text>{shortest_step(other)}</td>' if timed else ''}</tr>"
        for other in report.sweep
    )
    return (
        '<section aria-labelledby="batches"><h2 id="batches">Other batch sizes</h2><table class="sweep"><thead><tr>'
        f'<th scope="col">batch</th><th scope="col" class="text">answer</th>{head}</tr></thead><tbody>{rows}</tbody>'
        "</table></section>"
    )


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
        f"libraries.{_about_time(report)}</p><p>Made by tonnage {__version__}.</p></footer>"
    )


def _about_time(report: Report) -> str:
    if not any(estimate.time for estimate in report.estimates):
        return ""
    return (
        " Times come from the shapes of every call of the last step: what its kernels compute and move, against what the "
        "GPU can do, on two time-lines, one of the host that launches and one of the GPU that runs."
    )


def _detail(value: object) -> str:
    return escape(value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False))

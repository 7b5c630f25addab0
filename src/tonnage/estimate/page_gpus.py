"""The table of GPUs in the report: memory, time and cost of the program on each of them."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

from tonnage.estimate.estimate import Estimate, Report
from tonnage.estimate.page_cells import BASES, columns_of
from tonnage.estimate.page_text import escape, title_of, words

# What of the table is shown: cells carry the class `memory` or `time`, and `detail` where an overview does without.
VIEWS = {"overview": "Overview", "memory": "Memory", "time": "Time, energy, cost"}


def gpu_section(report: Report) -> str:
    return (
        '<section class="all-gpus" aria-labelledby="gpus"><h2 id="gpus" tabindex="-1">GPUs</h2>'
        f"{_switch(report)}"
        '<p class="tools" hidden><label for="filter">Filter</label> <input id="filter" type="search" '
        'placeholder="H100, fits, too small …" autocomplete="off"> <span id="shown" role="status"></span></p>'
        f'<div class="wide">{gpu_table(report.estimates)}</div>{_explained(report) if report.estimates else ""}</section>'
    )


def _switch(report: Report) -> str:
    """Works without a script: style rules ask which of the buttons is chosen."""
    if not any(estimate.time for estimate in report.estimates):
        return ""
    choices = "".join(
        f'<label><input type="radio" name="view" value="{name}"{" checked" if name == "overview" else ""}>{title}</label>'
        for name, title in VIEWS.items()
    )
    return f'<fieldset class="switch"><legend class="unseen">Columns</legend>{choices}</fieldset>'


def _explained(report: Report) -> str:
    known = [basis for e in report.estimates for basis in (e.basis, *([e.time.basis] if e.time else []))]
    bases = "".join(
        f"<div><dt>{words(basis)}</dt><dd>{BASES.get(basis, 'see the documentation')}</dd></div>"
        for basis in dict.fromkeys(known)
    )
    cover = " or ".join(f"{100 * coverage:.3g} %" for coverage in sorted({e.coverage for e in report.estimates}))
    timed = any(estimate.time for estimate in report.estimates)
    times = " Bounds of times hold in nine of ten programs; all stand on one logarithmic scale." if timed else ""
    return (
        '<p class="note">A bar is the memory needed against what the GPU offers; the whisker is the interval that '
        f"holds the truth with a probability of {cover}. The mark is the end of usable memory.{times} The basis says "
        f'how a figure is known:</p><dl class="bases">{bases}</dl>'
    )


def gpu_table(estimates: Sequence[Estimate]) -> str:
    """The smallest GPU that fits first, then larger ones, then those that do not fit, the nearest first."""
    columns = columns_of(estimates)
    order = sorted(estimates, key=_rank)
    heads = "".join(f'<th scope="col" role="columnheader" class="{c.kind}">{c.head}</th>' for c in columns)
    rows = "".join(
        f'<tr role="row" class="{"fits" if estimate.fits else "small"}">'
        f'<th scope="row" role="rowheader" class="gpu">{escape(title_of(estimate))}</th>'
        f"{''.join(column.cell(estimate) for column in columns)}</tr>"
        for estimate in order
    )
    return (
        '<table class="gpus" role="table"><thead role="rowgroup"><tr role="row"><th scope="col" role="columnheader" '
        f'class="text">GPU</th>{heads}</tr></thead><tbody role="rowgroup">{rows}</tbody></table>'
    )


def _rank(estimate: Estimate) -> tuple[bool, float, str, int]:
    size = estimate.usable_bytes if estimate.fits else distance_to_limit(estimate)
    return not estimate.fits, size, estimate.gpu, estimate.gpu_count


def distance_to_limit(estimate: Estimate) -> float:
    """How far, in either direction and by ratio, the upper bound is from the usable memory."""
    return abs(log(max(estimate.usable_bytes, 1) / max(estimate.device_bytes.high, 1)))

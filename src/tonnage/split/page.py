"""Distributions of a network as one HTML page that works offline: the front, the graph by device, time-lines and tables.

What belongs to one distribution is drawn by the script for the one that is chosen; its numbers all stand in the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from tonnage.estimate.page_text import escape, page_head, policy_for, script_json
from tonnage.split.distribution import Distribution
from tonnage.split.page_boxes import boxes_of
from tonnage.split.page_front import front_section
from tonnage.split.page_measured import measured_section
from tonnage.split.page_parts import chosen_bar, device_section, graph_section, lane_section, time_section
from tonnage.split.page_summary import facts, summarize, targets_section
from tonnage.split.page_views import Views
from tonnage.split.pool import Pool
from tonnage.split.targets import Target

_STYLES = ("tonnage.estimate", "page.css"), ("tonnage.split", "page.css")
_SCRIPTS = tuple(
    ("tonnage.split", name) for name in ("page_base.js", "page_graph.js", "page_time.js", "page_tables.js", "page.js")
)


def render_page(
    pool: Pool,
    distributions: Sequence[Distribution],
    *,
    front: Sequence[Distribution] = (),
    axes: Sequence[Target] = (),
    measured: Mapping[str, Any] | None = None,
) -> str:
    """A complete document that loads nothing from anywhere.

    `distributions` are the best for each target, the first of them shown first; `front` those between which one can choose,
    by the targets of `axes`; `measured` what a run of the first distribution says of itself (`Outcome.as_dict`).
    """
    views = Views(pool)
    best = [(views.number_of(each), each) for each in distributions]
    choices = [(views.number_of(each), each) for each in front]
    boxes = boxes_of(pool.network)
    script = _text(_SCRIPTS)
    head = page_head(f"{escape(pool.network.name)}: split over devices", policy_for(script), _text(_STYLES))
    return f"""{head}<body>
<header>
<p class="brand"><span>Tonnage split</span><button type="button" id="theme" hidden>Dark</button></p>
<h1><code>{escape(pool.network.name)}</code></h1>
<p class="summary">{summarize(pool, distributions)}</p>
{facts(pool)}
</header>
<main>
{targets_section(pool.network, best)}
{measured_section(measured, _which(distributions))}
{front_section(choices, axes, best)}
{chosen_bar(pool.network)}
{graph_section(pool.network, boxes)}
{time_section()}
{device_section(pool.network)}
{lane_section(pool.network)}
</main>
<script type="application/json" id="data">{script_json(views.data(boxes))}</script>
<script>{script}</script>
</body>
</html>
"""


def _text(resources: Sequence[tuple[str, str]]) -> str:
    return "".join(files(package).joinpath(name).read_text(encoding="utf-8") for package, name in resources)


def _which(distributions: Sequence[Distribution]) -> str:
    return f"The distribution for {escape(distributions[0].target)} has run." if distributions else "It has run."

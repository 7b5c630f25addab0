"""The parts of the page that show one distribution: frames that the script fills for the one that is chosen."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tonnage.split.network import Network
from tonnage.split.page_boxes import Boxes
from tonnage.split.page_graph import draw_graph
from tonnage.split.page_words import count_words, unit_of


def chosen_bar(network: Network) -> str:
    return (
        '<noscript><p class="warnings">Distributions are drawn by a script, which this viewer does not run.</p></noscript>'
        '<div class="chosen scripted" hidden><label>Shown below <select id="view"></select></label>'
        f'<p id="metrics" aria-live="polite" data-unit="{unit_of(network)}"></p></div>'
    )


def graph_section(network: Network, boxes: Boxes) -> str:
    operations = count_words(len(network.operations), "operation")
    if len(boxes.members) < len(network.operations):
        operations += f" in {count_words(len(boxes.members), 'box')}"
    return (
        '<section aria-labelledby="graph"><h2 id="graph">The network by device</h2>'
        f'<p class="note">{operations}; every other line runs from right to left. A box has the number and the colour of '
        "its device, or of several. Thick lines are tensors that go from one device to another.</p>"
        '<ul class="devices" id="legend"></ul>'
        '<p class="zoom scripted" hidden><button type="button" data-zoom="1.4" aria-label="Zoom in">+</button>'
        '<button type="button" data-zoom="0.714" aria-label="Zoom out">−</button>'
        '<button type="button" data-zoom="width">full width</button>'
        '<button type="button" data-zoom="all">whole graph</button></p>'
        f'<div class="canvas">{draw_graph(boxes)}</div>'
        '<p class="readout scripted" id="box" aria-live="polite" hidden></p>'
        '<details><summary id="cut-count">Tensors that go from one device to another</summary>'
        f"{_cut_table()}</details></section>"
    )


def _cut_table() -> str:
    heads = ("tensor", "made by", "from", "to", "bytes", "time on quiet links")
    return f'<div class="scroll rows">{_table("cut-table", heads, left=heads[:4])}</div>'


def time_section() -> str:
    return (
        '<section aria-labelledby="time"><h2 id="time">Time-line</h2><p class="note" id="time-note"></p>'
        '<div class="scroll" id="time-line"></div>'
        '<p class="readout scripted" id="bar" aria-live="polite" hidden></p></section>'
    )


def device_section(network: Network) -> str:
    heads = (
        "device", "kind", "operations", "computes", "of the period", "memory", "of its memory", "sends", "receives",
    )  # fmt: skip
    table = _table("device-table", heads, left=("device", "kind", "of the period", "of its memory"))
    return (
        '<section aria-labelledby="device-head"><h2 id="device-head">Devices</h2>'
        f'<p class="note">Computing, sending and receiving are for one {unit_of(network)}.</p>'
        f'<div class="scroll">{table}</div></section>'
    )


def lane_section(network: Network) -> str:
    table = _table("lane-table", ("link", "rate", "busy", "of the period"), left=("link", "of the period"))
    return (
        '<section aria-labelledby="lane-head"><h2 id="lane-head">Links</h2>'
        f'<p class="note">Each direction of a link, and how long the traffic of one {unit_of(network)} keeps it busy.</p>'
        f'<div class="scroll">{table}</div></section>'
    )


def _table(name: str, heads: Sequence[str], *, left: Collection[str]) -> str:
    cells = "".join(f'<th scope="col"{" class=text" if head in left else ""}>{head}</th>' for head in heads)
    return f'<table class="plain sortable" id="{name}"><thead><tr>{cells}</tr></thead><tbody></tbody></table>'

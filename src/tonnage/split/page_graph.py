"""The graph of a network as SVG, without colours: the script paints boxes and cut tensors for the distribution shown."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tonnage.estimate.page_text import escape
from tonnage.split.page_boxes import Boxes
from tonnage.split.page_layout import BOX_HEIGHT, BOX_WIDTH, Layout, Point, lay_out

_TURN = 24  # how far a line swings out at the end of a line
_TAG = 17  # left on a box, for the number of its device
_LETTERS = 16


def draw_graph(boxes: Boxes) -> str:
    layout = lay_out(boxes)
    edges = "".join(
        f'<path data-edge="{source},{target}" d="{_path(route)}"/>' for (source, target), route in layout.routes.items()
    )
    drawn = "".join(_box(number, label, layout.boxes[number]) for number, label in enumerate(boxes.labels))
    return (
        f'<svg class="graph" viewBox="0 0 {layout.width:.0f} {layout.height:.0f}" width="{layout.width:.0f}" '
        f'role="group" aria-label="{_words(boxes, layout)}"><defs>'
        '<marker id="head" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="6" markerHeight="6" '
        'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L6 3L0 6z"/></marker></defs>'
        f'<g id="edges">{edges}</g><g id="cuts"></g><g id="boxes">{drawn}</g><g id="cut-labels"></g></svg>'
    )


def _words(boxes: Boxes, layout: Layout) -> str:
    operations = sum(map(len, boxes.members))
    return f"The network: {operations} operations in {len(boxes.members)} boxes, {len(layout.routes)} connections"


def _box(number: int, label: str, point: Point) -> str:
    x, y = point.x - BOX_WIDTH / 2, point.y - BOX_HEIGHT / 2
    return (
        f'<g data-box="{number}" transform="translate({x:.0f} {y:.0f})">'
        f'<rect width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="3"/>'
        f'<text x="{_TAG + 4}" y="16">{escape(shortened(label))}</text></g>'
    )


def shortened(label: str, letters: int = _LETTERS) -> str:
    """Of a path its last modules are seen, where boxes differ; of other words their beginning."""
    while len(label) > letters and "." in label:
        label = label.partition(".")[2]
    return label if len(label) <= letters else label[: letters - 1] + "…"


def _path(route: Sequence[Point]) -> str:
    """From side to side of the places that it passes; straight along those that are no boxes."""
    first, last = route[0], route[-1]
    parts = [f"M{_out(first):.0f} {first.y:.0f}"]
    for start, end in pairwise(route):
        parts.append(_curve(start, end))
        if end is not last:
            parts.append(f"H{_out(end):.0f}")
    return "".join(parts)


def _curve(start: Point, end: Point) -> str:
    begin, stop = _out(start), _in(end)
    if start.line == end.line:
        middle = (begin + stop) / 2
        return f"C{middle:.0f} {start.y:.0f} {middle:.0f} {end.y:.0f} {stop:.0f} {end.y:.0f}"
    side = begin + start.direction * _TURN
    return f"C{side:.0f} {start.y:.0f} {side:.0f} {end.y:.0f} {stop:.0f} {end.y:.0f}"


def _out(point: Point) -> float:
    return point.x + point.direction * BOX_WIDTH / 2


def _in(point: Point) -> float:
    return point.x - point.direction * BOX_WIDTH / 2

"""Draws stacks as a flame graph: one SVG file that needs nothing else, in which a browser can zoom and search."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from tonnage.profile.report import Stack
from tonnage.units import format_seconds

_WIDTH, _ROW, _TOP, _SIDE = 1200, 19, 76, 12
_CHARACTER = 6.6  # pixels of the font at 11.5 pixels
_LEAST = 0.0004  # of the whole: what is narrower cannot be seen, and would make the file large
# Hues of the phases; each box differs a little, so that neighbours can be told apart.
_HUES = {"forward": 212, "backward": 28, "optimizer": 145, "data": 345}
_OTHER_HUE = 45


@dataclass(slots=True)
class Box:
    """One frame in one place. `seconds` holds what is inside as well."""

    name: str
    seconds: float = 0.0
    children: dict[str, Box] = field(default_factory=dict)


def build_tree(stacks: Sequence[Stack], name: str) -> Box:
    root = Box(name)
    for stack in stacks:
        place = root
        place.seconds += stack.seconds
        for frame in stack.frames:
            place = place.children.setdefault(frame, Box(frame))
            place.seconds += stack.seconds
    return root


def draw(stacks: Sequence[Stack], title: str, subtitle: str = "") -> str:
    """The whole file."""
    root = build_tree(stacks, "all")
    boxes = list(_layout(root)) if root.seconds > 0 else []
    height = _TOP + _ROW * (max((depth for _, depth, *_ in boxes), default=0) + 1) + 16
    drawn = "\n".join(_draw_box(box, depth, at, share, hue, root.seconds) for box, depth, at, share, hue in boxes)
    folder = Path(__file__).parent
    style, script = (folder / "flamegraph.css").read_text(), (folder / "flamegraph.js").read_text()
    label = escape(title, quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="100%" preserveAspectRatio="xMidYMin" role="img" aria-label="{label}">\n<style>{style}</style>\n'
        f'<rect class="ground" width="{_WIDTH}" height="{height}"/>\n'
        f'<text class="title" x="{_SIDE}" y="24">{escape(title)}</text>\n'
        f'<text class="note" x="{_SIDE}" y="42">{escape(subtitle)}</text>\n'
        f'<text class="note" id="readout" x="{_SIDE}" y="64">Click a box to zoom; Esc goes back.</text>\n'
        f'<foreignObject x="{_WIDTH - 300}" y="10" width="288" height="30">'
        '<input xmlns="http://www.w3.org/1999/xhtml" id="find" type="search" placeholder="Find, e.g. attn or Conv" '
        'aria-label="Find frames"/></foreignObject>\n'
        f'<text class="note end" id="found" x="{_WIDTH - _SIDE}" y="56" role="status"></text>\n'
        f'<g id="boxes" data-width="{_WIDTH - 2 * _SIDE}" data-side="{_SIDE}">\n{drawn}\n</g>\n'
        f"<script><![CDATA[{script}]]></script>\n</svg>\n"
    )


def _layout(root: Box) -> Iterator[tuple[Box, int, float, float, int]]:
    """Boxes with their depth, where they begin and how wide they are (shares of the whole), and their hue."""
    waiting = [(root, 0, 0.0, _OTHER_HUE)]
    while waiting:
        box, depth, at, hue = waiting.pop()
        yield box, depth, at, box.seconds / root.seconds, hue
        for child in sorted(box.children.values(), key=lambda child: (-child.seconds, child.name)):
            share = child.seconds / root.seconds
            if share >= _LEAST:
                waiting.append((child, depth + 1, at, _HUES.get(child.name, _OTHER_HUE) if depth == 0 else hue))
            at += share


def _draw_box(box: Box, depth: int, at: float, share: float, hue: int, whole: float) -> str:
    width = _WIDTH - 2 * _SIDE
    x, y, wide = _SIDE + at * width, _TOP + depth * _ROW, share * width
    fits = int((wide - 6) / _CHARACTER)
    label = box.name if len(box.name) <= fits else box.name[: fits - 1] + "…" if fits > 2 else ""
    told = f"{box.name}: {format_seconds(box.seconds)}, {box.seconds / whole:.1%}"
    return (
        f'<g data-x="{at:.6f}" data-w="{share:.6f}" data-d="{depth}" data-n="{escape(box.name, quote=True)}">'
        f"<title>{escape(told)}</title>"
        f'<rect x="{x:.2f}" y="{y}" width="{max(wide - 0.4, 0.3):.2f}" height="{_ROW - 1}" rx="2" '
        f'fill="{_colour(box.name, hue, depth)}"/>'
        f'<text x="{x + 4:.2f}" y="{y + 13}">{escape(label)}</text></g>'
    )


def _colour(name: str, hue: int, depth: int) -> str:
    if depth == 0:
        return "hsl(220 12% 80%)"
    shade = zlib.crc32(name.encode())
    return f"hsl({hue + shade % 17 - 8} {62 + shade // 32 % 16}% {70 + shade // 1024 % 10}%)"

"""The drawings of the report: memory over time, and the peak as a treemap. Complete without a script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from math import ceil, log2

from tonnage.estimate.estimate import Estimate, MemoryCurve, PeakTensor, operation
from tonnage.estimate.page_text import escape, percent, script_json, words
from tonnage.units import format_bytes

# From the bottom of the stack to its top: what stays for the whole run comes first, so that the upper bands stand on
# level ground. The classes in page.css have these names.
STACK = (
    "context", "parameters", "optimizer_state", "gradients", "inputs", "activations", "temporaries", "workspace",
)  # fmt: skip
PHASES = ("setup", "forward", "backward", "optimizer", "copy")
HEIGHT = 2000  # of the stacked chart's coordinates; its width is the number of points
WIDE, NARROW = (1000.0, 400.0), (360.0, 520.0)  # shapes for which the treemap is laid out
Box = tuple[float, float, float, float]  # left, top, width, height


def category_class(name: str) -> str:
    return f"c-{name}" if name in STACK else "c-other"


def stack_order(names: Mapping[str, object]) -> list[str]:
    return [name for name in STACK if name in names] + [name for name in names if name not in STACK]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A MemoryCurve made safe to draw: equal lengths, stacking order, indices in range."""

    gpu: str
    bands: dict[str, tuple[int, ...]]
    phases: tuple[str, ...]
    step_ends: tuple[int, ...]
    peak: int

    @property
    def points(self) -> int:
        return len(self.phases)

    @property
    def totals(self) -> list[int]:
        return [sum(values) for values in zip(*self.bands.values(), strict=True)]

    def step(self, point: int) -> int:
        """The number of the step, from 1, to which a point belongs."""
        return 1 + sum(end < point for end in self.step_ends)

    def place(self, point: int) -> str:
        """A point in words: `step 2, backward`."""
        step = f"step {self.step(point)}, " if self.step_ends else ""
        return step + (self.phases[point].replace("_", " ") or f"point {point + 1}")

    def left(self, point: float) -> float:
        """The horizontal position of a point, in percent."""
        return 100 * min(max(point / max(self.points - 1, 1), 0), 1)


def series_of(curve: MemoryCurve | None) -> Series | None:
    """What can be drawn of a curve, if anything."""
    if curve is None:
        return None
    points = min((len(values) for values in curve.categories.values()), default=0)
    bands = {name: tuple(curve.categories[name][:points]) for name in stack_order(curve.categories)}
    bands = {name: values for name, values in bands.items() if any(values)}
    if not points or not bands:
        return None
    return Series(
        gpu=curve.gpu,
        bands=bands,
        phases=(curve.phases + ("",) * points)[:points],
        step_ends=tuple(sorted({end for end in curve.step_ends if 0 <= end < points})),
        peak=min(max(curve.peak, 0), points - 1),
    )


def curve_data(series: Series) -> str:
    """The numbers of the chart for the script that shows them under the pointer."""
    return script_json(
        {
            "values": list(reversed(series.bands.values())),
            "places": [series.place(point) for point in range(series.points)],
            "totals": series.totals,
            "peak": series.peak,
        }
    )


def draw_curve(series: Series) -> str:
    """The stacked chart with its axes and, beside it, the legend with the values at the peak."""
    top = max(series.totals) * 1.08
    label = (
        f"Memory in use over {series.points} points of the run, stacked by category. The peak is "
        f"{format_bytes(series.totals[series.peak])} in {escape(series.place(series.peak))}."
    )
    return (
        f'<div class="curve"><div class="chart"><div class="ticks" aria-hidden="true">{"".join(_ticks(top))}</div>'
        f'<div class="plot" role="img" aria-label="{label}"><svg viewBox="0 0 {max(series.points - 1, 1)} {HEIGHT}" '
        f'preserveAspectRatio="none" aria-hidden="true" focusable="false">{"".join(_bands(series, top))}'
        f"{_step_lines(series)}</svg>{_peak_mark(series, top)}"
        f'<i class="cursor" hidden></i></div>{_steps(series)}{_phases(series)}</div>{_legend(series)}</div>'
    )


def _ticks(top: float) -> Iterator[str]:
    step = 2 ** max(ceil(log2(top / 6)), 0)
    for value in range(0, int(top) + 1, step):
        text = format_bytes(value) if value else "0"
        text = text.replace(".00 ", " ").replace(".0 ", " ")
        yield f'<span style="bottom:{100 * value / top:.2f}%">{text}</span>'


def _bands(series: Series, top: float) -> Iterator[str]:
    """Each category down to the ground, the highest first: the next one covers what is not its own."""
    heights = list(accumulate(series.bands.values(), lambda low, band: tuple(map(int.__add__, low, band))))
    last = max(series.points - 1, 1)
    for name, height in reversed(list(zip(series.bands, heights, strict=True))):
        values = height if len(height) > 1 else height * 2
        line = " ".join(f"{x},{HEIGHT - HEIGHT * value / top:.0f}" for x, value in enumerate(values))
        yield f'<path class="{category_class(name)}" d="M0,{HEIGHT}L{line} {last},{HEIGHT}Z"/>'


def _step_lines(series: Series) -> str:
    return "".join(f'<path class="step" d="M{end},0V{HEIGHT}"/>' for end in series.step_ends)


def _peak_mark(series: Series, top: float) -> str:
    total, left = series.totals[series.peak], series.left(series.peak)
    side = " flip" if left > 60 else ""
    return (
        f'<i class="peak{side}" style="left:{left:.2f}%;bottom:{100 * total / top:.2f}%">'
        f"<b>peak {format_bytes(total)}</b></i>"
    )


def _steps(series: Series) -> str:
    """Names of the steps below the chart, thinned out where there are many."""
    every = max(1, ceil(len(series.step_ends) / 10))
    begin, cells = 0.0, []
    for number, end in enumerate(series.step_ends, 1):
        left = series.left(end)
        name = f"step {number}" if number % every == 0 or number == 1 else ""
        cells.append(f'<span style="left:{begin:.2f}%;width:{left - begin:.2f}%">{name}</span>')
        begin = left
    return f'<div class="steps" aria-hidden="true">{"".join(cells)}</div>' if cells else ""


def _phases(series: Series) -> str:
    """A strip that says which part of a step each stretch of the chart belongs to."""
    if not any(series.phases):
        return ""
    cells = []
    for phase, members in groupby(range(series.points), lambda point: series.phases[point]):
        run = list(members)
        left, right = series.left(run[0] - 0.5), series.left(run[-1] + 0.5)
        kind = f"p-{phase}" if phase in PHASES else "p-other"
        name = f"<span>{words(phase)}</span>" if right - left > 4 else ""
        cells.append(f'<i class="{kind}" style="left:{left:.2f}%;width:{right - left:.2f}%">{name}</i>')
    return f'<div class="phases" aria-hidden="true">{"".join(cells)}</div>'


def _legend(series: Series) -> str:
    total = series.totals[series.peak]
    rows = "".join(
        f'<tr><th scope="row"><i class="swatch {category_class(name)}"></i>{words(name)}</th>'
        f"<td>{format_bytes(values[series.peak])}</td><td>{percent(values[series.peak], total)}</td></tr>"
        for name, values in reversed(series.bands.items())
    )
    return (
        f'<table class="legend"><caption>At the peak: {escape(series.place(series.peak))}</caption>'
        f'<thead class="unseen"><tr><th scope="col">Category</th><th scope="col">Memory</th><th scope="col">Share</th>'
        f"</tr></thead><tbody>{rows}</tbody>"
        f'<tfoot><tr><th scope="row">in use</th><td>{format_bytes(total)}</td><td></td></tr></tfoot></table>'
    )


def phase_table(series: Series) -> str:
    """The highest point of each phase of each step, by category: the chart in numbers."""
    totals, highest = series.totals, dict[tuple[int, str], int]()
    for point, total in enumerate(totals):
        key = series.step(point), series.phases[point]
        if key not in highest or total > totals[highest[key]]:
            highest[key] = point
    heads = "".join(f'<th scope="col">{words(name)}</th>' for name in series.bands)
    rows = "".join(
        f'<tr><th scope="row">{escape(series.place(point))}</th>'
        + "".join(f"<td>{format_bytes(values[point])}</td>" for values in series.bands.values())
        + f"<td>{format_bytes(totals[point])}</td></tr>"
        for point in highest.values()
    )
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Highest memory in each phase">'
        '<table class="plain">'
        f'<thead><tr><th scope="col">highest in</th>{heads}<th scope="col">in use</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


@dataclass(frozen=True, slots=True)
class Tile:
    """One tensor of the treemap, or what remains of its category."""

    bytes: int
    label: str
    description: str
    rest: bool = False


def groups_at_peak(estimate: Estimate) -> dict[str, list[Tile]]:
    """The peak by category: its largest tensors, then the remainder; the largest category first."""
    groups: dict[str, list[Tile]] = {}
    for name in stack_order({**estimate.categories, **{tensor.category: 0 for tensor in estimate.largest}}):
        tensors = sorted((t for t in estimate.largest if t.category == name), key=lambda t: -t.bytes)
        tiles = [Tile(t.bytes, _label(t), describe(t)) for t in tensors if t.bytes > 0]
        rest = estimate.categories.get(name, 0) - sum(tile.bytes for tile in tiles)
        if rest > 0:
            text = f"everything else in {name.replace('_', ' ')}" if tiles else f"all {name.replace('_', ' ')}"
            tiles.append(Tile(rest, text, text, rest=True))
        if tiles:
            groups[name] = tiles
    return dict(sorted(groups.items(), key=lambda item: -sum(tile.bytes for tile in item[1])))


def _label(tensor: PeakTensor) -> str:
    text = tensor.module or operation(tensor.operator) or "unnamed"
    return text if len(text) <= 40 else "…" + text[-38:]


def describe(tensor: PeakTensor) -> str:
    parts = (tensor.module, operation(tensor.operator), f"{shape_words(tensor.shape)} {tensor.dtype}")
    return ", ".join(part for part in parts if part.strip())


def shape_words(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape)) or "scalar"


def draw_treemap(estimate: Estimate) -> str:
    """The peak as nested boxes whose areas are bytes, laid out once for wide and once for narrow screens."""
    groups = groups_at_peak(estimate)
    sizes = [sum(tile.bytes for tile in tiles) for tiles in groups.values()]
    wide, narrow = squarify(sizes, (0, 0, *WIDE)), squarify(sizes, (0, 0, *NARROW))
    boxes = "".join(
        _draw_group(name, size, sum(sizes), tiles, (outer, WIDE), (slim, NARROW))
        for (name, tiles), size, outer, slim in zip(groups.items(), sizes, wide, narrow, strict=True)
    )
    return f'<div class="treemap" role="group" aria-label="Memory at the peak, by category and tensor">{boxes}</div>'


def _draw_group(
    name: str, size: int, total: int, tiles: list[Tile], wide: tuple[Box, tuple[float, float]],
    narrow: tuple[Box, tuple[float, float]],
) -> str:  # fmt: skip
    inner = [(0.0, 0.0, box[2], max(box[3] - 20, 1.0)) for box in (wide[0], narrow[0])]
    layouts = [squarify([tile.bytes for tile in tiles], box) for box in inner]
    cells = "".join(
        f'<div class="tile{" rest" if tile.rest else ""}" '
        f'style="--wide:{_inset(a, inner[0][2:])};--narrow:{_inset(b, inner[1][2:])}" '
        f'title="{escape(tile.description)}, {format_bytes(tile.bytes)} ({percent(tile.bytes, total)} of the peak)">'
        f"<p><b>{escape(tile.label).replace('.', '.<wbr>')}</b><span>{format_bytes(tile.bytes)}</span></p></div>"
        for tile, a, b in zip(tiles, *layouts, strict=True)
    )
    return (
        f'<div class="group {category_class(name)}" style="--wide:{_inset(*wide)};--narrow:{_inset(*narrow)}">'
        f'<p class="head"><b>{words(name)}</b> {format_bytes(size)}</p><div class="inner">{cells}</div></div>'
    )


def _inset(box: Box, area: Sequence[float]) -> str:
    """A box as the CSS property `inset`: distances from top, right, bottom and left in percent."""
    (left, top, width, height), (whole_width, whole_height) = box, area
    edges = top / whole_height, 1 - (left + width) / whole_width, 1 - (top + height) / whole_height, left / whole_width
    return " ".join(f"{100 * max(edge, 0):.2f}%" for edge in edges)


def squarify(sizes: Sequence[float], box: Box) -> list[Box]:
    """Boxes with areas proportional to `sizes` (positive, best largest first), as square as rows allow.

    Bruls, Huizing and van Wijk, "Squarified treemaps", 2000: a row grows along the shorter side while that improves
    the worst ratio in it.
    """
    left, top, width, height = box
    scale, rest, boxes = width * height / (sum(sizes) or 1), [float(size) for size in sizes], list[Box]()
    while rest:
        beside, side, count = width >= height, min(width, height), 1
        while count < len(rest) and _worst(rest[: count + 1], scale, side) <= _worst(rest[:count], scale, side):
            count += 1
        row, rest = rest[:count], rest[count:]
        depth = sum(row) * scale / side if side > 0 else 0.0
        ends = list(accumulate(row, initial=0.0))
        for size, begin in zip(row, ends, strict=False):
            length, offset = side * size / ends[-1], side * begin / ends[-1]
            boxes.append((left, top + offset, depth, length) if beside else (left + offset, top, length, depth))
        if beside:
            left, width = left + depth, max(width - depth, 0.0)
        else:
            top, height = top + depth, max(height - depth, 0.0)
    return boxes


def _worst(row: Sequence[float], scale: float, side: float) -> float:
    area = sum(row) * scale
    return max(max(side**2 * size * scale / area**2, area**2 / (side**2 * size * scale)) for size in row) if side else 0

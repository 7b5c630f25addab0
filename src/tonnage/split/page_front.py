"""The front as a chart: a point for each distribution, to be clicked on or walked along with the arrow keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10, sqrt

from tonnage.split.page_words import NAMES, Numbered, count_words, value_words
from tonnage.split.targets import Target, value_of

_WIDTH, _HEIGHT = 640, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 18, 14, 46
_MIDDLE = (_LEFT + _WIDTH - _RIGHT) / 2
_RADIUS, _SMALLEST, _LARGEST = 7.0, 4.0, 12.0
_ROOM = 0.08  # of the range, on both sides
_SCALES = {
    Target.ENERGY: ((1e6, "MJ"), (1e3, "kJ"), (1.0, "J"), (1e-3, "mJ")),
    Target.MEMORY: ((0.01, "%"),),
    Target.NODES: ((1.0, ""),),
}
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


@dataclass(frozen=True, slots=True)
class Axis:
    """A target's values between two ends of a line in the chart, and the unit in which they are written."""

    target: Target
    low: float
    high: float
    begin: float
    end: float
    unit: float
    unit_name: str

    def at(self, value: float) -> float:
        return self.begin + (self.end - self.begin) * (value - self.low) / (self.high - self.low)

    @property
    def title(self) -> str:
        return NAMES[self.target] + (f" ({self.unit_name})" if self.unit_name else "")

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Round values, about six of them."""
        low, high = self.low / self.unit, self.high / self.unit
        power = 10 ** floor(log10((high - low) / 6))
        step = next(power * factor for factor in (1, 2, 5, 10) if (high - low) / (power * factor) <= 6)
        if self.target is Target.NODES:
            step = max(1, round(step))
        digits = max(0, -floor(log10(step) + 1e-9))
        for number in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1):
            yield number * step * self.unit, f"{number * step:,.{digits}f}"


def axis_of(target: Target, values: Sequence[float], begin: float, end: float) -> Axis:
    least, most = min(values), max(values)
    spare = _ROOM * (most - least) or 0.1 * most or 1.0
    if target is Target.NODES:
        spare = max(spare, 0.6)
    scales = _SCALES.get(target, _SECONDS)
    unit, name = next((scale for scale in scales if most >= scale[0]), scales[-1])
    return Axis(target, max(least - spare, 0.0), most + spare, begin, end, unit, name)


@dataclass(frozen=True, slots=True)
class _Choice:
    """A distribution of the front: its number in the page, and its value for each axis."""

    number: int
    values: tuple[float, ...]
    devices: int


def front_section(front: Numbered, axes: Sequence[Target], best: Numbered) -> str:
    """The chart and, beside it, the same as a table."""
    choices = [
        _Choice(number, tuple(value_of(axis, each.metrics) for axis in axes), each.metrics.devices)
        for number, each in front
        if each.metrics is not None
    ]
    if not choices or len(axes) < 2:
        return ""
    bounds = {Target(each.target): each.bound for _, each in [*front, *best]}
    return (
        '<section aria-labelledby="front"><h2 id="front">Distributions to choose from</h2>'
        f'<p class="note">None that was found beats one of these in {"both" if len(axes) == 2 else "all three"}. '
        "Dashed: what no distribution can beat. "
        '<span class="scripted" hidden>Choose a point, by click or with the arrow keys, to see its distribution below.'
        f'</span></p><div class="choices"><div>{_draw(choices, axes, bounds)}</div>{_table(choices, axes)}</div></section>'
    )


def _table(choices: Sequence[_Choice], axes: Sequence[Target]) -> str:
    with_devices = Target.NODES not in axes
    heads = [NAMES[axis] for axis in axes] + ["devices"] * with_devices
    rows = [
        [value_words(axis, value) for axis, value in zip(axes, choice.values, strict=True)]
        + [str(choice.devices)] * with_devices
        for choice in choices
    ]
    body = "".join(
        f'<tr data-view="{choice.number}" data-show="{choice.number}">{"".join(f"<td>{text}</td>" for text in row)}</tr>'
        for choice, row in zip(choices, rows, strict=True)
    )
    return (
        '<div class="scroll rows"><table class="plain"><thead><tr>'
        + "".join(f'<th scope="col">{head}</th>' for head in heads)
        + f"</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _draw(choices: Sequence[_Choice], axes: Sequence[Target], bounds: Mapping[Target, float]) -> str:
    """The first two targets along the axes, a third one as the size of points."""
    columns = list(zip(*(choice.values for choice in choices), strict=True))
    across = axis_of(axes[0], columns[0], _LEFT, _WIDTH - _RIGHT)
    up = axis_of(axes[1], columns[1], _HEIGHT - _BOTTOM, _TOP)
    sizes = columns[2] if len(axes) > 2 else ()
    ordered = sorted(choices, key=lambda choice: choice.values[2:], reverse=True)  # small ones stay in sight
    points = "".join(_point(choice, axes, across, up, sizes) for choice in ordered)
    return (
        f'<svg class="front" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="radiogroup" '
        f'aria-label="{count_words(len(choices), "distribution")} by {" and ".join(NAMES[axis] for axis in axes)}">'
        f"{_frame(across, up)}{_bounds(across, up, bounds)}{'' if sizes else _steps(across, up, choices)}{points}</svg>"
        + (_sizes(axes[2], sizes) if sizes else "")
    )


def _radius(value: float, values: Sequence[float]) -> float:
    """The area grows with the value."""
    least, most = min(values), max(values)
    share = (value - least) / (most - least) if most > least else 0.5
    return sqrt(_SMALLEST**2 + share * (_LARGEST**2 - _SMALLEST**2))


def _frame(across: Axis, up: Axis) -> str:
    bottom = _HEIGHT - _BOTTOM
    lines = [
        f'<path class="rule" d="M{across.at(value):.1f} {_TOP}V{bottom}"/>'
        f'<text x="{across.at(value):.1f}" y="{bottom + 16}" text-anchor="middle">{text}</text>'
        for value, text in across.ticks()
    ]
    lines += [
        f'<path class="rule" d="M{_LEFT} {up.at(value):.1f}H{_WIDTH - _RIGHT}"/>'
        f'<text x="{_LEFT - 8}" y="{up.at(value) + 4:.1f}" text-anchor="end">{text}</text>'
        for value, text in up.ticks()
    ]
    middle = (_TOP + bottom) / 2
    return (
        "".join(lines)
        + f'<text class="title" x="{_MIDDLE}" y="{_HEIGHT - 8}" text-anchor="middle">{across.title}</text>'
        f'<text class="title" transform="translate(14 {middle}) rotate(-90)" text-anchor="middle">{up.title}</text>'
    )


def _bounds(across: Axis, up: Axis, bounds: Mapping[Target, float]) -> str:
    """Where it is in sight: the value that no distribution beats."""
    lines = []
    if across.low <= bounds.get(across.target, -1.0):
        lines.append((f"M{across.at(bounds[across.target]):.1f} {_TOP}V{_HEIGHT - _BOTTOM}", "left of"))
    if up.low <= bounds.get(up.target, -1.0):
        lines.append((f"M{_LEFT} {up.at(bounds[up.target]):.1f}H{_WIDTH - _RIGHT}", "below"))
    return "".join(
        f'<path class="bound" d="{path}"><title>No distribution is {where} this.</title></path>'
        for path, where in lines
    )


def _steps(across: Axis, up: Axis, choices: Sequence[_Choice]) -> str:
    """What lies right of this line and above it is worse than some distribution."""
    corners = sorted((across.at(choice.values[0]), up.at(choice.values[1])) for choice in choices)
    path = f"M{corners[0][0]:.1f} {_TOP}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in corners)
    return f'<path class="steps" d="{path}H{_WIDTH - _RIGHT}"/>'


def _point(choice: _Choice, axes: Sequence[Target], across: Axis, up: Axis, sizes: Sequence[float]) -> str:
    words = ", ".join(
        f"{NAMES[axis]} {value_words(axis, value)}" for axis, value in zip(axes, choice.values, strict=True)
    )
    radius = _radius(choice.values[2], sizes) if sizes else _RADIUS
    return (
        f'<circle class="point" data-view="{choice.number}" role="radio" aria-checked="false" aria-label="{words}" '
        f'cx="{across.at(choice.values[0]):.1f}" cy="{up.at(choice.values[1]):.1f}" r="{radius:.1f}">'
        f"<title>{words}</title></circle>"
    )


def _sizes(target: Target, values: Sequence[float]) -> str:
    least, most = (value_words(target, value) for value in (min(values), max(values)))
    return (
        f'<p class="note sizes">Size: {NAMES[target]}, from <i class="dot"></i> {least} '
        f'to <i class="dot most"></i> {most}.</p>'
    )

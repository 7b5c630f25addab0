"""Where the boxes of a graph stand: in layers by the longest way to them, in rows so that few lines cross.

A line over several layers takes a place of its own in each of them, one for all lines that leave the same box. Layers run
to the right and, at the end of a line, back in the next one, as an ox ploughs: neighbours stay near each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tonnage.split.page_boxes import Boxes

COLUMNS = 8  # layers of a line
BOX_WIDTH, BOX_HEIGHT = 112, 24
PITCH = 158  # from one layer to the next
_BOX_ROOM, _LINE_ROOM = 33.0, 11.0  # heights that a box and a passing line take
_MARGIN, _ABOVE, _BETWEEN_LINES = 40.0, 20.0, 26.0
_MOST_GAP = 1.3 * _BOX_ROOM  # between two heights of a line
_SWEEPS = 8

Place = tuple[int, int]  # a box, and the layer in which it, or a line that leaves it, is met


@dataclass(frozen=True, slots=True)
class Point:
    """The middle of a place. In lines that run to the left `direction` is -1."""

    x: float
    y: float
    line: int

    @property
    def direction(self) -> int:
        return -1 if self.line % 2 else 1


@dataclass(frozen=True, slots=True)
class Layout:
    """The boxes, what each line passes from box to box, and how large all is."""

    boxes: tuple[Point, ...]
    routes: Mapping[tuple[int, int], tuple[Point, ...]]
    width: float
    height: float


def lay_out(boxes: Boxes) -> Layout:
    layer_of = _layers(boxes)
    layers = _places(boxes, layer_of)
    before = _links(boxes, layer_of)
    after: dict[Place, list[Place]] = {place: [] for layer in layers for place in layer}
    for place, leaders in before.items():
        for leader in leaders:
            after[leader].append(place)
    _order(layers, before, after)
    heights = _heights(layers, layer_of, before, after)
    points, height = _points(layers, heights)
    routes = {
        (source, target): tuple(
            points[source if layer < layer_of[target] else target, layer]
            for layer in range(layer_of[source], layer_of[target] + 1)
        )
        for source, target in boxes.edges
    }
    width = 2 * _MARGIN + PITCH * (min(len(layers), COLUMNS) - 1) + BOX_WIDTH
    return Layout(tuple(points[box, layer] for box, layer in enumerate(layer_of)), routes, width, height)


def _layers(boxes: Boxes) -> list[int]:
    """By the longest way; what waits for nothing stands just before its first reader."""
    layers = [0] * len(boxes.members)
    is_first = [True] * len(layers)
    for box, follower in boxes.edges:
        layers[follower] = max(layers[follower], layers[box] + 1)
        is_first[follower] = False
    for box, followers in enumerate(boxes.followers):
        if is_first[box] and followers:
            layers[box] = min(layers[each] for each in followers) - 1
    return layers


def _places(boxes: Boxes, layer_of: Sequence[int]) -> list[list[Place]]:
    layers: list[list[Place]] = [[] for _ in range(max(layer_of, default=-1) + 1)]
    for box, followers in enumerate(boxes.followers):
        last = max((layer_of[each] for each in followers), default=0)
        for layer in range(layer_of[box], max(last, layer_of[box] + 1)):
            layers[layer].append((box, layer))
    return layers


def _links(boxes: Boxes, layer_of: Sequence[int]) -> dict[Place, list[Place]]:
    """Of each place those of the layer before it that lead there."""
    links: dict[Place, dict[Place, None]] = {}
    for source, target in boxes.edges:
        for layer in range(layer_of[source] + 1, layer_of[target] + 1):
            place = (source if layer < layer_of[target] else target, layer)
            links.setdefault(place, {})[source, layer - 1] = None
    return {place: list(leaders) for place, leaders in links.items()}


def _order(
    layers: Sequence[list[Place]], before: Mapping[Place, Sequence[Place]], after: Mapping[Place, Sequence[Place]]
) -> None:
    """Every place goes to the mean of its neighbours in the layer before, then in the layer after, and so on."""
    for sweep in range(_SWEEPS):
        neighbours, sweeping = (after, layers[::-1]) if sweep % 2 else (before, layers)
        rank: dict[Place, float] = {}
        for layer in sweeping:
            own = {place: number for number, place in enumerate(layer)}
            wanted = {place: _mean((rank[each] for each in neighbours.get(place, ())), own[place]) for place in layer}
            layer.sort(key=lambda place: (wanted[place], own[place]))
            rank |= {place: (number + 0.5) / len(layer) for number, place in enumerate(layer)}


def _mean(values: Iterable[float], default: float) -> float:
    found = list(values)
    return sum(found) / len(found) if found else default


def _heights(
    layers: Sequence[Sequence[Place]],
    layer_of: Sequence[int],
    before: Mapping[Place, Sequence[Place]],
    after: Mapping[Place, Sequence[Place]],
) -> dict[Place, float]:
    """The middle of each place: near its neighbours' as far as the order and the room that each takes allow."""
    heights: dict[Place, float] = {}
    for layer in layers:
        _spread(layer, dict.fromkeys(layer, 0.0), layer_of, heights)
    for sweep in range(_SWEEPS):
        neighbours, sweeping = (after, layers[::-1]) if sweep % 2 else (before, layers)
        for layer in sweeping:
            wanted = {
                place: _mean((heights[each] for each in neighbours.get(place, ())), heights[place]) for place in layer
            }
            _spread(layer, wanted, layer_of, heights)
    return heights


def _spread(
    layer: Sequence[Place], wanted: Mapping[Place, float], layer_of: Sequence[int], heights: dict[Place, float]
) -> None:
    """The heights nearest to the wanted ones, in their squares: those that would overlap move as one block."""
    blocks: list[list[float]] = []  # sum of what its places want for its top, and how many they are
    offsets: list[float] = []
    offset = 0.0
    for place in layer:
        room = _BOX_ROOM if layer_of[place[0]] == place[1] else _LINE_ROOM
        offsets.append(offset + room / 2)
        offset += room
        blocks.append([wanted[place] - offsets[-1], 1])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
            total, count = blocks.pop()
            blocks[-1][0] += total
            blocks[-1][1] += count
    tops = [total / count for total, count in blocks for _ in range(int(count))]
    heights.update((place, top + offset) for place, top, offset in zip(layer, tops, offsets, strict=True))


def _points(layers: Sequence[Sequence[Place]], heights: Mapping[Place, float]) -> tuple[dict[Place, Point], float]:
    """Lines under each other, every other one from right to left."""
    points: dict[Place, Point] = {}
    top = _ABOVE
    last = min(len(layers), COLUMNS) - 1
    for line in range(-(-len(layers) // COLUMNS)):
        own = layers[line * COLUMNS : (line + 1) * COLUMNS]
        depths = _closer(heights[place] for layer in own for place in layer)
        for number, layer in enumerate(own):
            x = _MARGIN + BOX_WIDTH / 2 + PITCH * (last - number if line % 2 else number)
            middles = {place: top + BOX_HEIGHT / 2 + depths[heights[place]] for place in layer}
            points.update((place, Point(x, y, line)) for place, y in middles.items())
        top += max(depths.values()) + BOX_HEIGHT + _BETWEEN_LINES
    return points, top - _BETWEEN_LINES + _ABOVE


def _closer(heights: Iterable[float]) -> dict[float, float]:
    """How far each height is below the highest one, with no large empty space between."""
    ordered = sorted(set(heights))
    depths = {ordered[0]: 0.0}
    for height, next_height in pairwise(ordered):
        depths[next_height] = depths[height] + min(next_height - height, _MOST_GAP)
    return depths

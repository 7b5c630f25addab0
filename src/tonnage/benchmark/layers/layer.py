"""One layer, and the drawing of many. Nothing here needs torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from tonnage.benchmark.layers.draw import Draw, Value
from tonnage.benchmark.layers.kinds import KINDS, LOOPED_TENSORS

MOST_ELEMENTS = 1 << 27  # of one tensor: fits on a GPU with 16 GB
# Multiplications for each element of the largest tensor that may be there: a run of a few milliseconds on a GPU.
_WORK_PER_ELEMENT = 1 << 12
# How many draws to try for each layer wanted, before a space is taken to have no more different ones.
_PATIENCE = 200
_DTYPE_WEIGHTS = (2, 2, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer: its kind, its numbers, the dtype of its tensors."""

    kind: str
    numbers: Mapping[str, Value] = field(hash=False)
    dtype: str

    @property
    def key(self) -> str:
        """The same on every machine and for every version: 16 hexadecimal digits."""
        text = json.dumps([self.kind, dict(self.numbers), self.dtype], sort_keys=True)
        return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]


def sample_layers(
    count: int, seed: int, kinds: Sequence[str] = (), most_elements: int = MOST_ELEMENTS
) -> Iterator[Layer]:
    """Different layers, of all kinds or some, whose largest tensor has at most so many elements."""
    draws = islice(_draws(Draw((seed,)), list(kinds or KINDS)), _PATIENCE * count)
    return islice(_different(layer for layer in draws if is_reasonable(layer, most_elements)), count)


def _different(layers: Iterable[Layer]) -> Iterator[Layer]:
    seen: set[str] = set()
    for layer in layers:
        if layer.key not in seen:
            seen.add(layer.key)
            yield layer


def _draws(draw: Draw, names: list[str]) -> Iterator[Layer]:
    weights = [KINDS[name].weight for name in names]
    while True:
        name = names[draw.index(weights)]
        kind = KINDS[name]
        numbers = {number: sample(draw) for number, sample in kind.numbers.items()}
        dtype = kind.dtypes[draw.index(_DTYPE_WEIGHTS[: len(kind.dtypes)])]
        yield Layer(kind=name, numbers=numbers, dtype=dtype)


def is_reasonable(layer: Layer, most_elements: int = MOST_ELEMENTS) -> bool:
    """Are its tensors and its work small enough?"""
    elements, work = _image_size(layer) if "channels" in layer.numbers else _matrix_size(layer)
    if layer.numbers.get("function") == "adamw_loop" and _size(layer, "rows") > LOOPED_TENSORS:
        return False
    return elements <= most_elements and work <= most_elements * _WORK_PER_ELEMENT and _groups_divide(layer)


def _image_size(layer: Layer) -> tuple[int, float]:
    """Elements of the largest tensor, and multiplications, of something with channels."""
    dims = _size(layer, "dims", 2)
    positions = _size(layer, "batch") * _size(layer, "size") ** dims
    channels, filters = _size(layer, "channels"), _size(layer, "filters")
    window = _size(layer, "kernel") ** dims
    return positions * max(channels, filters), positions * channels * filters * window / _size(layer, "groups")


def _matrix_size(layer: Layer) -> tuple[int, float]:
    rows, columns, depth = (_size(layer, name) for name in ("rows", "columns", "depth"))
    if "head" in layer.numbers:  # attention, whose matrix may be materialised
        columns, depth = rows, _size(layer, "head")
    batch = _size(layer, "batch") * _size(layer, "heads")
    elements = max(rows * columns, rows * depth, columns * depth, _size(layer, "tokens") * columns)
    return batch * elements, batch * rows * columns * depth


def _groups_divide(layer: Layer) -> bool:
    groups = _size(layer, "groups")
    return _size(layer, "channels", groups) % groups == 0 and _size(layer, "filters", groups) % groups == 0


def _size(layer: Layer, name: str, default: int = 1) -> int:
    return int(layer.numbers.get(name, default))

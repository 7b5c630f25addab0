"""Single layers with random shapes: the part of the benchmark that tells the kernel model about every kind of operator.

A `Layer` names a kind, its numbers and its dtype. `sample_layers` draws them as networks use them (channels in steps of 8
and 64 more often than odd ones, batches that fit), `build` makes the forward and backward call of one.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tonnage.errors import NotFound

MOST_ELEMENTS = 1 << 27  # of one tensor
MOST_MULTIPLY_ADDS = 1 << 39


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer: its kind, its numbers, the dtype of its tensors."""

    kind: str
    numbers: Mapping[str, int | float | str | bool]
    dtype: str

    @property
    def key(self) -> str:
        text = json.dumps([self.kind, self.numbers, self.dtype], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class Draw:
    """Random numbers as they are found in networks."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def among(self, *choices: Any, weights: Sequence[float] | None = None) -> Any:
        total = None if weights is None else np.array(weights) / sum(weights)
        return choices[int(self._generator.choice(len(choices), p=total))]

    def log(self, low: int, high: int) -> int:
        return round(math.exp(self._generator.uniform(math.log(low), math.log(high))))

    def width(self, low: int, high: int) -> int:
        """A number of channels or features: mostly a multiple of 64 or 8, now and then an odd one."""
        value = self.log(low, high)
        multiple = self.among(64, 16, 8, 1, weights=(5, 2, 2, 1))
        return max(low, value) if value < multiple else value // multiple * multiple

    def power(self, low: int, high: int) -> int:
        return 2 ** int(self._generator.integers(low.bit_length() - 1, high.bit_length()))

    def size(self) -> int:
        """Rows or columns of an image as networks have them after some pooling."""
        return int(self.among(224, 112, 56, 28, 14, 7, 256, 128, 64, 32, 16, 8, 4, self.log(5, 160)))

    def chance(self, probability: float) -> bool:
        return bool(self._generator.random() < probability)


class Stage(Protocol):
    """Where a scene says what it is about to do, and asks for cold caches."""

    def phase(self, name: str) -> None: ...
    def forget(self) -> None: ...


Scene = Callable[[Stage], None]


@dataclass(frozen=True, slots=True)
class Kind:
    """How often a kind of layer is drawn, how its numbers are drawn, and how it is made."""

    weight: float
    samplers: Mapping[str, Callable[[Draw], Any]]
    make: Callable[..., Scene]
    dtypes: tuple[str, ...]


KINDS: dict[str, Kind] = {}
FLOATS = ("float32", "bfloat16", "float16")


def kind(weight: float, dtypes: tuple[str, ...] = FLOATS, **samplers: Callable[[Draw], Any]) -> Any:
    """Registers a maker under its own name; each keyword says how one of its numbers is drawn."""

    def register(make: Callable[..., Scene]) -> Callable[..., Scene]:
        KINDS[make.__name__] = Kind(weight, samplers, make, dtypes)
        return make

    return register


def sample_layers(count: int, seed: int, kinds: Sequence[str] = ()) -> Iterator[Layer]:
    """Distinct layers, none of which is too large for an ordinary GPU."""
    from tonnage.benchmark import layer_kinds  # noqa: F401  (fills the table)

    draw, seen = Draw(np.random.default_rng(seed)), set()
    names = list(kinds or KINDS)
    weights = [KINDS[name].weight for name in names]
    while len(seen) < count:
        name = draw.among(*names, weights=weights)
        chosen = KINDS[name]
        layer = Layer(
            kind=name,
            numbers={number: sampler(draw) for number, sampler in chosen.samplers.items()},
            dtype=draw.among(*chosen.dtypes, weights=(2, 2, 1)[: len(chosen.dtypes)]),
        )
        if layer.key not in seen and is_reasonable(layer.numbers):
            seen.add(layer.key)
            yield layer


def is_reasonable(numbers: Mapping[str, Any]) -> bool:
    """Are tensors and work small enough for a GPU with 16 GB and a run of a few milliseconds?"""
    size = {name: value for name, value in numbers.items() if isinstance(value, int)}.get
    batch = size("batch", 1) * size("heads", 1)
    if size("channels", 0):
        space, groups = size("size", 1) ** size("dims", 2), size("groups", 1)
        channels, filters = size("channels", 1), size("filters", 1)
        work = batch * space * channels * filters / groups * size("kernel", 1) ** size("dims", 2)
        divides = channels % groups == 0 and filters % groups == 0
        return divides and batch * space * max(channels, filters) <= MOST_ELEMENTS and work <= MOST_MULTIPLY_ADDS
    rows, columns, depth = size("rows", 1), size("columns", 1), size("depth", 1)
    if size("head", 0):  # attention, whose matrix may be materialised
        columns, depth = rows, size("head", 1)
    elements = batch * max(rows * columns, rows * depth, columns * depth)
    return elements <= MOST_ELEMENTS and batch * rows * columns * depth <= MOST_MULTIPLY_ADDS


def build(layer: Layer, device: str) -> Scene:
    """The layer's forward and backward pass as one call."""
    from tonnage.benchmark import layer_kinds

    if layer.kind not in KINDS:
        raise NotFound(f"there is no layer {layer.kind}", f"known are {', '.join(KINDS)}")
    return KINDS[layer.kind].make(layer_kinds.Bench(device, layer.dtype), **layer.numbers)

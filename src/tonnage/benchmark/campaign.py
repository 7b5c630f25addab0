"""A campaign: the points to measure, how, and for how long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, product, zip_longest
from math import prod

from tonnage.benchmark.axis import Axis
from tonnage.benchmark.layers.layer import Layer
from tonnage.benchmark.messages import Method
from tonnage.benchmark.sampling import Source
from tonnage.benchmark.workloads.family import TooManyParameters
from tonnage.benchmark.workloads.number import Value
from tonnage.benchmark.workloads.point import Point, make_point

MAX_POINTS = 100_000
# How many draws to try for each point wanted, before a space is taken to have no more different ones.
_PATIENCE = 20

Values = Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """What to measure. `groups` are the points of each entry of the file, in the order to take them."""

    name: str
    groups: tuple[tuple[Point, ...], ...]
    layers: tuple[Layer, ...] = ()
    description: str = ""
    seed: int = 0
    budget_seconds: float = 600.0  # of measuring; points beyond it are left for the next run
    repetitions: int = 3
    steps: int = 20
    kernels: bool = True  # also one row for each kernel
    limit_seconds: float = 120.0  # for one point or layer; what takes longer has failed

    @property
    def method(self) -> Method:
        return Method(steps=self.steps, repetitions=self.repetitions, kernels=self.kernels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How the points of one entry are chosen: `grid`, `random` or `latin-hypercube`."""

    family: str
    sample: str
    axes: Sequence[Axis]
    fixed: Values
    count: int = 0  # of random and latin-hypercube

    @property
    def grid_size(self) -> int:
        return prod(len(axis.values) for axis in self.axes)


def points(campaign: Campaign) -> tuple[Point, ...]:
    """All points, each once. One of each group in turn: whoever stops early has still seen all families."""
    in_turn = chain.from_iterable(zip_longest(*campaign.groups))
    return tuple({point.key: point for point in in_turn if point is not None}.values())


def choose(choice: Choice, seed: Sequence[int]) -> tuple[Point, ...]:
    """The points of one entry, in an order of which every beginning is spread over the whole.

    Networks that are too large to build are left out, equal ones taken once.
    """
    source = Source(seed)
    if choice.sample == "grid":
        return tuple(_different(choice, _grid(choice, source)))
    draws = islice(_draws(choice, source), _PATIENCE * choice.count)
    return tuple(islice(_different(choice, draws), choice.count))


def _grid(choice: Choice, source: Source) -> Iterator[Values]:
    every = list(product(*(axis.values for axis in choice.axes)))
    for index in source.permutation(len(every)).tolist():
        yield {axis.name: value for axis, value in zip(choice.axes, every[index], strict=True)}


def _draws(choice: Choice, source: Source) -> Iterator[Values]:
    """What the sample asks for first; then random ones, in place of what turned out equal or too large."""
    dimensions = len(choice.axes)
    first: Iterator[tuple[float, ...]] = iter(())
    if choice.sample == "latin-hypercube":
        first = source.latin_hypercube(choice.count, dimensions)
    for shares in chain(first, source.random(dimensions)):
        yield {axis.name: axis.at(share) for axis, share in zip(choice.axes, shares, strict=True)}


def _different(choice: Choice, draws: Iterator[Values]) -> Iterator[Point]:
    seen: set[str] = set()
    for values in draws:
        try:
            point = make_point(choice.family, {**choice.fixed, **values})
        except TooManyParameters:
            continue
        if point.key not in seen:
            seen.add(point.key)
            yield point

"""Random numbers as they are found in networks, and ways to say which of them a layer wants."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TypeAlias

from tonnage.benchmark.sampling import Source

Value: TypeAlias = int | float | str | bool
Sampler: TypeAlias = "Callable[[Draw], Value]"

# What many networks have; half of all draws are among these, so that what is most often asked for was measured.
_CHANNELS = (
    16, 24, 32, 40, 48, 64, 80, 96, 112, 128, 144, 160, 192, 224, 256, 320, 384, 480, 512, 576, 640, 672, 768, 960, 1024,
    1152, 1280, 1536, 2048,
)  # fmt: skip
_FEATURES = (
    64, 128, 256, 384, 512, 768, 1000, 1024, 1280, 1536, 2048, 2304, 2560, 3072, 4096, 5120, 8192, 11008, 14336, 30522,
    32000, 50257, 50304,
)  # fmt: skip
_BATCHES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512)
_IMAGE_SIDES = (224, 112, 56, 28, 14, 7, 256, 128, 64, 32, 16, 8, 4)


class Draw:
    """Draws that depend on the seed alone, on every machine and with every version."""

    def __init__(self, seed: Sequence[int]) -> None:
        self._source = Source(seed)

    def share(self) -> float:
        """From 0 to below 1."""
        return float(self._source.uniform(1)[0])

    def index(self, weights: Sequence[float]) -> int:
        """A position, more often where the weight is larger."""
        aim = self.share() * sum(weights)
        return next((place for place, end in enumerate(accumulate(weights)) if aim < end), len(weights) - 1)

    def log(self, low: int, high: int) -> int:
        return round(math.exp(math.log(low) + self.share() * (math.log(high) - math.log(low))))

    def width(self, low: int, high: int) -> int:
        """A number of channels or features: mostly a multiple of 64 or 8, now and then an odd one."""
        value = self.log(low, high)
        multiple = (64, 16, 8, 1)[self.index((5, 2, 2, 1))]
        return max(low, value) if value < multiple else value // multiple * multiple


def _usual(known: Sequence[int], low: int, high: int, otherwise: Sampler) -> Sampler:
    usual = one_of(*(number for number in known if low <= number <= high))
    return one_of(usual, otherwise)


def channels(low: int, high: int) -> Sampler:
    """Channels of images."""
    return _usual(_CHANNELS, low, high, width(low, high))


def features(low: int, high: int) -> Sampler:
    """Features of vectors: widths of transformers, classes, vocabularies."""
    return _usual(_FEATURES, low, high, width(low, high))


def batch(high: int) -> Sampler:
    return _usual(_BATCHES, 1, high, log(1, high))


def log(low: int, high: int) -> Sampler:
    """Whole numbers, spread evenly on a logarithmic scale."""
    return lambda draw: draw.log(low, high)


def width(low: int, high: int) -> Sampler:
    """Numbers of channels or features."""
    return lambda draw: draw.width(low, high)


def power(low: int, high: int) -> Sampler:
    """Powers of two between two of them."""
    exponents = range(low.bit_length() - 1, high.bit_length())
    return lambda draw: 2 ** exponents[int(draw.share() * len(exponents))]


def chance(probability: float) -> Sampler:
    return lambda draw: draw.share() < probability


def always(value: Value) -> Sampler:
    return lambda draw: value


def one_of(*choices: Value | Sampler, weights: Sequence[float] = ()) -> Sampler:
    """One of the values; a sampler among them is asked when it is its turn."""
    chosen_by = weights or [1.0] * len(choices)

    def sample(draw: Draw) -> Value:
        choice = choices[draw.index(chosen_by)]
        return choice(draw) if callable(choice) else choice

    return sample


def image_side() -> Sampler:
    """Rows or columns of an image as networks have them after some pooling."""
    return one_of(*_IMAGE_SIDES, log(5, 160))

"""One layer of a network as plain data, and what its rule says about it: the shapes of what it makes and of its weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import NoReturn, TypeAlias

from tonnage.errors import InvalidFile
from tonnage.program.caffe.message import Message, at, one_line

Shape: TypeAlias = tuple[int, ...]
MOST_NUMBERS = 2**31 - 1  # in one blob, as in Caffe
MOST_AXES = 32
_MOST_NAME = 100  # of which a message shows so much


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer. Blobs that change in place have one name and several values: `reads` and `makes` number the values."""

    name: str
    type: str
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    message: Message
    reads: tuple[int, ...] = ()
    makes: tuple[int, ...] = ()

    def param(self, name: str) -> Message:
        """The settings of this name; empty ones if they are missing."""
        return self.message.part(name)

    def refuse(self, problem: str, message: Message | None = None, field: str = "", hint: str = "") -> NoReturn:
        """Raise `InvalidFile` with the place of the layer, or of the field that is wrong."""
        line = message.line_of(field) if message is not None and field else self.message.line
        told = f"layer {self.name[:_MOST_NAME]} ({self.type[:_MOST_NAME]}) {problem}"
        raise InvalidFile(f"{at(self.message.file, line)}: {one_line(told)}", hint)


@dataclass(frozen=True, slots=True)
class Shaped:
    """What a layer makes of bottoms of known shapes."""

    tops: tuple[Shape, ...]
    weights: tuple[Shape, ...] = ()


def axis_of(layer: Layer, axis: int, shape: Shape, *, end: bool = False) -> int:
    """An axis counted from the front; `end` allows the place behind the last one."""
    most = len(shape) + (1 if end else 0)
    if not -most <= axis < most:
        layer.refuse(f"names axis {axis} of {shown(shape)}")
    return axis % most if most else 0


def size_of(layer: Layer, shape: Sequence[int]) -> Shape:
    """A shape that a blob may have."""
    if len(shape) > MOST_AXES:
        layer.refuse(f"would make a blob of {len(shape)} axes; {MOST_AXES} are possible")
    if any(size < 1 for size in shape):
        layer.refuse(f"would make a blob of {shown(shape)}")
    if prod(shape) > MOST_NUMBERS:
        layer.refuse(f"would make a blob of {shown(shape)}, more than {MOST_NUMBERS:,} numbers")
    return tuple(shape)


def needed(layer: Layer, param: Message, name: str) -> int:
    """A size that must be given, and be 1 or more."""
    value = param.get(name)
    if value is None:
        layer.refuse(f"does not say its {name}")
    if value < 1:
        layer.refuse(f"has a {name} of {value}", param, name)
    return int(value)


def shown(shape: Sequence[int]) -> str:
    return "x".join(str(size) for size in shape) or "a single number"

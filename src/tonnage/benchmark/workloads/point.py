"""A point of the benchmark: one network of a family under one set of running conditions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from tonnage.benchmark.workloads.number import Number, Value
from tonnage.benchmark.workloads.registry import find_family
from tonnage.errors import UsageError

CONDITIONS = (
    Number(name="batch", low=1, high=4096, default=32, help="samples in a step"),
    Number(
        name="precision",
        choices=("float32", "bfloat16", "float16"),
        default="float32",
        help="`float32` as torch is set; the others with autocast, float16 also with gradient scaling",
    ),
    Number(
        name="optimizer",
        choices=("sgd", "momentum", "adam", "adamw"),
        default="sgd",
        help="of training; `momentum` is SGD with momentum 0.9",
    ),
    Number(
        name="memory_format",
        choices=("contiguous", "channels_last"),
        default="contiguous",
        help="layout of images and of the weights of convolutions",
    ),
    Number(name="mode", choices=("training", "inference"), default="training", help="what a step is"),
)
_DEFAULTS: dict[str, Value] = {condition.name: condition.default for condition in CONDITIONS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One network and how it is run. Made by `make_point`, so that equal work has equal points and keys."""

    family: str
    structure: Mapping[str, Value] = field(hash=False)
    batch: int
    precision: str
    optimizer: str  # empty for inference, which has none
    memory_format: str
    mode: str

    @property
    def key(self) -> str:
        """The same on every machine and for every version: 16 hexadecimal digits."""
        text = json.dumps(self.as_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]

    def as_dict(self) -> dict[str, object]:
        return {
            "family": self.family,
            "structure": dict(self.structure),
            "batch": self.batch,
            "precision": self.precision,
            "optimizer": self.optimizer,
            "memory_format": self.memory_format,
            "mode": self.mode,
        }


def make_point(family: str, values: Mapping[str, Value]) -> Point:
    """The point with these values for numbers of the family and for conditions; raises `NotFound` or `UsageError`."""
    found = find_family(family)
    conditions = {
        condition.name: condition.check(values[condition.name]) for condition in CONDITIONS if condition.name in values
    }
    structure = {name: value for name, value in values.items() if name not in _DEFAULTS}
    chosen = _DEFAULTS | conditions
    if chosen["memory_format"] == "channels_last" and not found.takes_images:
        raise UsageError(f"memory_format of {family} must be contiguous: it takes no images")
    return Point(
        family=family,
        structure=found.resolve(structure),
        batch=int(chosen["batch"]),
        precision=str(chosen["precision"]),
        optimizer="" if chosen["mode"] == "inference" else str(chosen["optimizer"]),
        memory_format=str(chosen["memory_format"]),
        mode=str(chosen["mode"]),
    )

"""Which fields Caffe's messages have: number in the wire format, type, and what holds if a field is missing.

`messages.txt` lists them; a line reads `name number type default`. Types are those of protobuf, another message, or an
enumeration; `*` means that a field may be repeated. Number 0: a field of one of Caffe's descendants, whose number differs
between them; such fields are read from text only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TypeAlias

Scalar: TypeAlias = bool | int | float | str

ENUMERATIONS: Mapping[str, Mapping[int, str]] = {
    "Phase": {0: "TRAIN", 1: "TEST"},
    "PoolMethod": {0: "MAX", 1: "AVE", 2: "STOCHASTIC"},
    "RoundMode": {0: "CEIL", 1: "FLOOR"},
    "EltwiseOp": {0: "PROD", 1: "SUM", 2: "MAX"},
    "NormRegion": {0: "ACROSS_CHANNELS", 1: "WITHIN_CHANNEL"},
    "ReductionOp": {1: "SUM", 2: "ASUM", 3: "SUMSQ", 4: "MEAN"},
    "CodeType": {1: "CORNER", 2: "CENTER_SIZE", 3: "CORNER_SIZE"},
    "BnMode": {0: "LEARN", 1: "INFERENCE"},
    "V1LayerType": {
        0: "NONE", 35: "ABSVAL", 1: "ACCURACY", 30: "ARGMAX", 2: "BNLL", 3: "CONCAT", 37: "CONTRASTIVE_LOSS",
        4: "CONVOLUTION", 5: "DATA", 39: "DECONVOLUTION", 6: "DROPOUT", 32: "DUMMY_DATA", 7: "EUCLIDEAN_LOSS",
        25: "ELTWISE", 38: "EXP", 8: "FLATTEN", 9: "HDF5_DATA", 10: "HDF5_OUTPUT", 28: "HINGE_LOSS", 11: "IM2COL",
        12: "IMAGE_DATA", 13: "INFOGAIN_LOSS", 14: "INNER_PRODUCT", 15: "LRN", 29: "MEMORY_DATA",
        16: "MULTINOMIAL_LOGISTIC_LOSS", 34: "MVN", 17: "POOLING", 26: "POWER", 18: "RELU", 19: "SIGMOID",
        27: "SIGMOID_CROSS_ENTROPY_LOSS", 36: "SILENCE", 20: "SOFTMAX", 21: "SOFTMAX_LOSS", 22: "SPLIT", 33: "SLICE",
        23: "TANH", 24: "WINDOW_DATA", 31: "THRESHOLD",
    },
}  # fmt: skip
# Settings of these do not change what an inference computes: they are read over.
IGNORED = "ignored"
# A message of these may hold fields that are not known here: settings of solvers, of other layers, of descendants.
OPEN = frozenset({"NetParameter", "LayerParameter", "V1LayerParameter"})


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message."""

    name: str
    number: int
    type: str
    repeated: bool
    default: Scalar | None


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of message: its fields by name, and by number."""

    name: str
    fields: dict[str, Field] = field(default_factory=dict)
    numbers: dict[int, Field] = field(default_factory=dict)


def _read(table: str) -> dict[str, Kind]:
    kinds: dict[str, Kind] = {}
    for line in table.strip().splitlines():
        if not line.startswith(" "):
            kinds[line] = kind = Kind(line)
            continue
        name, number, type_, *default = line.split()
        found = Field(name, int(number), type_.rstrip("*"), type_.endswith("*"), _default(type_, *default))
        kind.fields[name] = found
        if found.number:
            kind.numbers[found.number] = found
    return kinds


def _default(type_: str, text: str = "") -> Scalar | None:
    if not text:
        return None
    if type_ in ("int", "uint"):
        return int(text)
    if type_ == "float":
        return float(text)
    return text == "true" if type_ == "bool" else text


KINDS: Mapping[str, Kind] = _read(files(__package__).joinpath("messages.txt").read_text())

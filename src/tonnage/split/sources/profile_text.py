"""A network from a profile of a training step as pipeline planners write them: a line for each operation, with milliseconds
and bytes, and a line for each edge.

    node4 -- Conv2d(3, 32) -- forward_compute_time=1.250, backward_compute_time=2.500, activation_size=802816.000, parameter_size=3456.000
            node4 -- node5

Such a profile says nothing of what training keeps. Taken is what every framework needs at least: the results themselves
until their backward, and a gradient as large as the weights.
"""  # noqa: E501  (the format has long lines)

from __future__ import annotations

from pathlib import Path

from tonnage.errors import InvalidFile
from tonnage.split.checked import checked_network
from tonnage.split.network import ANY, Network, Operation
from tonnage.split.sources.content import read_text

_SEPARATOR = " -- "
_FORWARD, _BACKWARD = "forward_compute_time", "backward_compute_time"
_FIELDS = (_FORWARD, _BACKWARD, "activation_size", "parameter_size")
_FORM = "a line is ID -- DESCRIPTION -- forward_compute_time=MS, ..., parameter_size=BYTES, or an edge ID -- ID"


def read_profile(path: str | Path) -> Network:
    """The network in a file, plain or compressed; raises `NotFound` or `InvalidFile`."""
    return parse_profile(read_text(path), str(path))


def parse_profile(text: str, source: str) -> Network:
    """The network that a text describes; of training if any operation has a backward time."""
    operations: list[Operation] = []
    edges: list[tuple[str | int, str | int]] = []
    for number, line in enumerate(text.splitlines(), 1):
        parts = line.strip().split(_SEPARATOR)
        if len(parts) == 2:
            edges.append((parts[0], parts[1]))
        elif line.strip():
            operations.append(_operation(parts, f"{source}, line {number}"))
    return checked_network(
        _name(source),
        operations,
        edges,
        is_training=any(operation.backward_seconds[ANY] for operation in operations),
        inputs=[(str(each.id), each.output_bytes, [each.id]) for each in operations if _is_input(each)],
        source=source,
    )


def is_profile(text: str) -> bool:
    """Does a file look like one? Its first line tells."""
    first = text.lstrip().partition("\n")[0]
    return _SEPARATOR in first and (first.count(_SEPARATOR) == 1 or _FORWARD in first)


def _operation(parts: list[str], place: str) -> Operation:
    stated = next((part for part in parts[1:] if f"{_FORWARD}=" in part), None)
    if stated is None:
        raise InvalidFile(f"{place} is neither an operation nor an edge", _FORM)
    values = _values(stated, parts[0], place)
    description = _SEPARATOR.join(parts[1 : parts.index(stated)])
    output_bytes, weight_bytes = round(values["activation_size"]), round(values["parameter_size"])
    trains = values[_BACKWARD] > 0
    return Operation(
        id=parts[0],
        name=description,
        kind=description.partition("(")[0],
        seconds={ANY: values[_FORWARD] / 1e3},
        backward_seconds={ANY: values[_BACKWARD] / 1e3},
        weight_bytes=weight_bytes,
        state_bytes=weight_bytes if trains else 0,
        stash_bytes=output_bytes if trains else 0,
        output_bytes=output_bytes,
    )


def _is_input(operation: Operation) -> bool:
    """Does it only stand for what comes in? They are called `Input`, or `Input0`, `Input1`, ..."""
    return operation.kind.rstrip("0123456789") == "Input"


def _values(stated: str, name: str, place: str) -> dict[str, float]:
    found = dict(each.strip().partition("=")[::2] for each in stated.split(","))
    for field in _FIELDS:
        if field not in found:
            raise InvalidFile(f"{place}: operation {name} has no {field}", _FORM)
    return {field: _number(found[field], f"{place}: {field} of operation {name}") for field in _FIELDS}


def _number(text: str, what: str) -> float:
    """A number, or the sum of several as operations with several results have them: `[1.0; 2.0]`."""
    try:
        value = sum(float(part) for part in text.strip("[]").split(";"))
    except ValueError:
        raise InvalidFile(f"{what} is {text!r:.40}", "it should be a number") from None
    if not 0 <= value < float("inf"):
        raise InvalidFile(f"{what} is {text:.40}", "a cost is a finite number, 0 or more")
    return value


def _name(source: str) -> str:
    return Path(source).name.removesuffix(".gz").removesuffix(".txt")

"""What every network must be before it is split, whatever it was made from: finite, acyclic, in a topological order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import isfinite
from typing import TypeAlias

from tonnage.errors import InvalidFile
from tonnage.split.network import Input, Network, Operation

Id: TypeAlias = str | int

MOST_OPERATIONS = 1_000_000
_MOST_SHOWN = 8  # operations of a cycle in a message
_SECONDS = ("seconds", "backward_seconds", "update_seconds")
_BYTES = ("weight_bytes", "state_bytes", "stash_bytes", "output_bytes")


def checked_network(
    name: str,
    operations: Sequence[Operation],
    edges: Iterable[tuple[Id, Id]],
    *,
    is_training: bool = False,
    weight_bytes: Mapping[str, int] | None = None,
    inputs: Iterable[tuple[str, int, Iterable[Id]]] = (),
    outputs: Iterable[Id] | None = None,
    source: str = "",
) -> Network:
    """A network from operations in any order and edges between their ids; raises `InvalidFile`.

    `source` is what errors call the network: its file, as a rule. Operations keep their order where it is a topological
    one, and else move as little as possible. An edge that is given twice counts once. `inputs` are names, bytes and the
    operations that read them; `outputs` the operations that make them: if nobody says, those that nothing reads.
    """
    source = source or f"the network {name}"
    weight_bytes = dict(weight_bytes or {})
    _check_size(operations, source)
    for operation in operations:
        _check_costs(operation, source)
        _check_weights(operation, weight_bytes, source)
    positions = _positions(operations, source)
    pairs = _pairs(positions, edges, source)
    order = _topological(operations, pairs, source)
    place = {position: index for index, position in enumerate(order)}
    made = _unread(operations, pairs) if outputs is None else _known(positions, outputs, "output", source)
    return Network(
        name=name,
        operations=tuple(operations[position] for position in order),
        edges=tuple(sorted((place[first], place[second]) for first, second in pairs)),
        is_training=is_training,
        weight_bytes=weight_bytes,
        inputs=tuple(_input(each, positions, place, source) for each in inputs),
        outputs=tuple(sorted(place[position] for position in made)),
    )


def label(operation: Operation) -> str:
    """An operation as errors call it."""
    return (
        f"{operation.id} ({operation.name})" if operation.name and operation.name != operation.id else f"{operation.id}"
    )


# -- each operation by itself ---------------------------------------------------------------------------------------------


def _check_size(operations: Sequence[Operation], source: str) -> None:
    if not operations:
        raise InvalidFile(f"{source} has no operations", "a network needs at least one")
    if len(operations) > MOST_OPERATIONS:
        raise InvalidFile(
            f"{source} has {len(operations):,} operations",
            f"more than {MOST_OPERATIONS:,} are not split as one network",
        )


def _check_costs(operation: Operation, source: str) -> None:
    if not operation.seconds:
        raise InvalidFile(
            f"operation {label(operation)} of {source} runs on no kind of device", "give its seconds on at least one"
        )
    for field in _SECONDS:
        for kind, seconds in getattr(operation, field).items():
            _check_cost(operation, f"{field.replace('_', ' ')} on {kind}", seconds, source)
    for field in _BYTES:
        _check_cost(operation, field.replace("_", " "), getattr(operation, field), source)
    if operation.transfer_seconds is not None:
        _check_cost(operation, "transfer seconds", operation.transfer_seconds, source)


def _check_cost(operation: Operation, what: str, value: float, source: str) -> None:
    if not isfinite(value) or value < 0:
        raise InvalidFile(
            f"operation {label(operation)} of {source}: {what} is {value:g}", "a cost is a finite number, 0 or more"
        )


def _check_weights(operation: Operation, weight_bytes: Mapping[str, int], source: str) -> None:
    for name in operation.weights:
        if name not in weight_bytes:
            raise InvalidFile(
                f"operation {label(operation)} of {source} reads the weight {name}, whose size nobody tells",
                "list every weight with its bytes",
            )
        _check_cost(operation, f"bytes of the weight {name}", weight_bytes[name], source)


# -- all of them together -------------------------------------------------------------------------------------------------


def _positions(operations: Sequence[Operation], source: str) -> dict[Id, int]:
    positions: dict[Id, int] = {}
    for position, operation in enumerate(operations):
        if positions.setdefault(operation.id, position) != position:
            raise InvalidFile(f"{source} has two operations with the id {operation.id}", "ids must differ")
    return positions


def _pairs(positions: Mapping[Id, int], edges: Iterable[tuple[Id, Id]], source: str) -> list[tuple[int, int]]:
    """Edges between positions, each once."""
    pairs: dict[tuple[int, int], None] = {}
    for first, second in edges:
        for end in (first, second):
            if end not in positions:
                raise InvalidFile(
                    f"{source} has an edge from {first} to {second}, but no operation {end}",
                    "both ends of an edge must be operations of the network",
                )
        pairs[positions[first], positions[second]] = None
    return list(pairs)


def _input(
    entry: tuple[str, int, Iterable[Id]], positions: Mapping[Id, int], place: Mapping[int, int], source: str
) -> Input:
    name, nbytes, readers = entry
    if nbytes < 0:
        raise InvalidFile(f"the input {name} of {source} has {nbytes} bytes", "give 0 where nobody knows")
    known = _known(positions, readers, f"reader of the input {name}", source)
    return Input(name=name, nbytes=nbytes, readers=tuple(sorted(place[position] for position in known)))


def _known(positions: Mapping[Id, int], ids: Iterable[Id], what: str, source: str) -> set[int]:
    """Positions of operations that are named, each once."""
    found = set()
    for each in ids:
        if each not in positions:
            raise InvalidFile(f"{source} names {each} as {what}, but has no such operation", "name one by its id")
        found.add(positions[each])
    return found


def _unread(operations: Sequence[Operation], pairs: Sequence[tuple[int, int]]) -> set[int]:
    """Results that nothing reads are what a network is there for, but for gradients."""
    read = {first for first, _ in pairs}
    return {
        position for position, operation in enumerate(operations) if position not in read and not operation.is_backward
    }


def _topological(operations: Sequence[Operation], pairs: Sequence[tuple[int, int]], source: str) -> list[int]:
    """Positions in a topological order, of all such the first in the order given."""
    waiting = [0] * len(operations)
    consumers: list[list[int]] = [[] for _ in operations]
    for first, second in pairs:
        waiting[second] += 1
        consumers[first].append(second)
    ready = [position for position, count in enumerate(waiting) if not count]
    heapify(ready)
    order: list[int] = []
    while ready:
        position = heappop(ready)
        order.append(position)
        for consumer in consumers[position]:
            waiting[consumer] -= 1
            if not waiting[consumer]:
                heappush(ready, consumer)
    if len(order) < len(operations):
        cycle = _cycle({position for position, count in enumerate(waiting) if count}, pairs)
        raise InvalidFile(
            f"{source} has a cycle: {_shown([label(operations[position]) for position in cycle])}",
            "an operation cannot wait for its own result; unroll the loop",
        )
    return order


def _cycle(stuck: set[int], pairs: Sequence[tuple[int, int]]) -> list[int]:
    """One cycle among operations each of which waits for another of them; the first is also the last."""
    before = {second: first for first, second in pairs if first in stuck and second in stuck}
    path: dict[int, None] = {}
    position = min(stuck)
    while position not in path:
        path[position] = None
        position = before[position]
    walked = list(path)
    backwards = [*walked[walked.index(position) :], position]
    return backwards[::-1]


def _shown(names: Sequence[str]) -> str:
    """A path in words, long ones without their middle."""
    if len(names) > _MOST_SHOWN:
        half = _MOST_SHOWN // 2
        names = [*names[:half], f"({len(names) - 2 * half} more)", *names[-half:]]
    return " -> ".join(names)

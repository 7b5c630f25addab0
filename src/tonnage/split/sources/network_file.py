"""Networks on disk: JSON, compressed where the name ends in `.gz`. Captured on one machine, split on another."""

from __future__ import annotations

import contextlib
import gzip
import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tonnage.errors import InvalidFile, UsageError
from tonnage.split.checked import checked_network
from tonnage.split.network import Network, Operation
from tonnage.split.sources.content import read_json

FORMAT, VERSION = "tonnage-network", 1


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _OperationEntry(_Strict):
    """An operation. Fields are left out where they say nothing."""

    id: str | int
    seconds: dict[str, float]
    name: str = ""
    kind: str = ""
    backward_seconds: dict[str, float] = {}
    update_seconds: dict[str, float] = {}
    weight_bytes: int = 0
    state_bytes: int = 0
    stash_bytes: int = 0
    output_bytes: int = 0
    transfer_seconds: float | None = None
    weights: list[str] = []
    together: str | int | None = None
    is_backward: bool = False
    pinned: str = ""
    changes_weights: bool = False

    def operation(self) -> Operation:
        return Operation(**{**dict(self), "weights": tuple(self.weights)})


class _InputEntry(_Strict):
    name: str
    nbytes: int
    readers: list[str | int]


class _File(_Strict):
    format: str
    version: int
    name: str
    is_training: bool = False
    weight_bytes: dict[str, int] = {}
    inputs: list[_InputEntry] = []
    outputs: list[str | int] | None = None
    operations: list[_OperationEntry]
    edges: list[Annotated[list[str | int], Field(min_length=2, max_length=2)]]


def write_network(network: Network, path: str | Path) -> None:
    """Write a network; the file appears complete or not at all, and equal networks give equal bytes."""
    target = Path(path)
    partial = target.with_name(f".{target.name}.partial")
    content = json.dumps(plain_network(network), separators=(",", ":")).encode()
    try:
        partial.write_bytes(gzip.compress(content, mtime=0) if target.suffix == ".gz" else content)
        partial.replace(target)
    except OSError as error:
        raise UsageError(f"the network cannot be written to {target}: {error.strerror}") from None
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def read_network(path: str | Path) -> Network:
    """Read a network; raises `NotFound` or `InvalidFile`."""
    return load_network(read_json(path), str(path))


def load_network(plain: Any, source: str) -> Network:
    """A network from what a file says; everything is checked before it is used."""
    _check_version(plain, source)
    try:
        file = _File.model_validate(plain)
    except ValidationError as error:
        raise _refusal(error, plain, source) from None
    return checked_network(
        file.name,
        [entry.operation() for entry in file.operations],
        ((first, second) for first, second in file.edges),
        is_training=file.is_training,
        weight_bytes=file.weight_bytes,
        inputs=((each.name, each.nbytes, each.readers) for each in file.inputs),
        outputs=file.outputs,
        source=source,
    )


def is_network(plain: Any) -> bool:
    return isinstance(plain, dict) and plain.get("format") == FORMAT


def plain_network(network: Network) -> dict[str, Any]:
    """What a file says of a network."""
    ids = [operation.id for operation in network.operations]
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": network.name,
        "is_training": network.is_training,
        "weight_bytes": dict(network.weight_bytes),
        "inputs": [
            {"name": each.name, "nbytes": each.nbytes, "readers": [ids[reader] for reader in each.readers]}
            for each in network.inputs
        ],
        "outputs": [ids[position] for position in network.outputs],
        "operations": [_plain_operation(operation) for operation in network.operations],
        "edges": [[ids[first], ids[second]] for first, second in network.edges],
    }


def _plain_operation(operation: Operation) -> dict[str, Any]:
    """The fields that say something; `id` and `seconds` always."""
    values = {each.name: getattr(operation, each.name) for each in fields(Operation)}
    return {
        name: dict(value) if isinstance(value, Mapping) else value
        for name, value in values.items()
        if value != _UNSAID.get(name, ...)
    }


_UNSAID = {each.name: each.default for each in fields(Operation) if each.default is not MISSING} | {
    each.name: each.default_factory() for each in fields(Operation) if each.default_factory is not MISSING
}


def _check_version(plain: Any, source: str) -> None:
    if not is_network(plain):
        raise InvalidFile(f"{source} is not a network of Tonnage: it has no format {FORMAT!r}", "is it the right file?")
    version = plain.get("version")
    if isinstance(version, int) and version > VERSION:
        raise InvalidFile(
            f"{source} was written by a newer Tonnage (network version {version}, this one reads up to {VERSION})",
            "upgrade Tonnage: pip install --upgrade tonnage",
        )


def _refusal(error: ValidationError, plain: dict[str, Any], source: str) -> InvalidFile:
    """The first thing that is wrong, with the operation in which it is."""
    first = error.errors()[0]
    place, subject = first["loc"], source
    if place[:1] == ("operations",) and len(place) > 2:
        number = int(place[1])
        subject = f"operation {plain['operations'][number].get('id', f'number {number}')} of {source}"
        place = tuple(part for part in place[2:] if part not in ("str", "int"))  # that a union tried
    what = _WRONG.get(first["type"], f"cannot be {first['input']!r:.40}")
    return InvalidFile(f"{subject}: {'.'.join(map(str, place))} {what}", "write it again, or mend the file")


_WRONG = {
    "missing": "is missing",
    "extra_forbidden": "is no field of it",
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "too_short": "must have two ends",
    "too_long": "must have two ends",
}

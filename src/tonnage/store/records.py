"""Rows as flat records and back: a record has one entry for each column, and JSON columns hold what JSON can say.

Infinity and NaN, which attributes of operators hold and JSON does not, are written as `{"float": "-inf"}`; sequences come
back as tuples.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any, TypeAlias

from tonnage.errors import InvalidFile
from tonnage.program.trace import Attribute, Operator, TensorSpec
from tonnage.store.rows import Environment, HostRow, KernelRow, Measurement, Spread, Status

Record: TypeAlias = dict[str, Any]
AnyRecord: TypeAlias = Mapping[Any, Any]  # a Record, or SQLAlchemy's row with more kinds of keys

SPREADS = tuple(field.name for field in fields(Measurement) if "Spread" in str(field.type))
_PLAIN = tuple(field.name for field in fields(Measurement) if field.name not in SPREADS)


def canonical_json(value: object) -> str:
    """Equal values give equal text, in every process."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_text_of_time
    )


def _text_of_time(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{value!r} has no JSON")


def digest(*parts: object) -> str:
    """A name for a value that no other value has."""
    return hashlib.sha256(canonical_json(parts).encode()).hexdigest()


# -- attributes -----------------------------------------------------------------------------------------------------------


def encode(value: Attribute) -> object:
    """An attribute as JSON can say it."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": str(float(value))}
    if isinstance(value, Sequence):
        return [encode(item) for item in value]
    raise InvalidFile(f"{value!r:.60} is a {type(value).__name__}, which is no attribute")


def decode(value: object) -> Attribute:
    """The attribute that `encode` was given."""
    if isinstance(value, list):
        return tuple(decode(item) for item in value)
    if isinstance(value, dict):
        if list(value) != ["float"] or value["float"] not in ("inf", "-inf", "nan"):
            raise InvalidFile(f"{value!r:.60} is no attribute")
        return float(value["float"])
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InvalidFile(f"{value!r:.60} is no attribute")


def _encode_mapping(attributes: Mapping[str, Attribute]) -> dict[str, object]:
    return {name: encode(value) for name, value in attributes.items()}


def decode_mapping(value: object) -> dict[str, Attribute]:
    """Attributes by name."""
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise InvalidFile(f"{value!r:.60} does not map names to attributes")
    return {name: decode(item) for name, item in value.items()}


# -- operators ------------------------------------------------------------------------------------------------------------


def operator_record(operator: Operator) -> Record:
    spec = {
        "inputs": [_encode_tensor(tensor) for tensor in operator.inputs],
        "outputs": [_encode_tensor(tensor) for tensor in operator.outputs],
        "attributes": _encode_mapping(operator.attributes),
    }
    return {"name": operator.name, "spec": spec}


def operator_of(record: AnyRecord) -> Operator:
    """Raises `InvalidFile` if the spec is not one."""
    spec = record["spec"]
    if not isinstance(spec, dict) or set(spec) != {"inputs", "outputs", "attributes"}:
        raise InvalidFile(f"{spec!r:.60} has not inputs, outputs and attributes")
    inputs, outputs = (_tensors(spec[side]) for side in ("inputs", "outputs"))
    known = tuple(tensor for tensor in outputs if tensor is not None)
    if len(known) != len(outputs):
        raise InvalidFile("an output is null")
    return Operator(record["name"], inputs, known, decode_mapping(spec["attributes"]))


def _encode_tensor(tensor: TensorSpec | None) -> object:
    return None if tensor is None else [list(tensor.shape), tensor.dtype, tensor.layout, list(tensor.strides)]


def _tensors(value: object) -> tuple[TensorSpec | None, ...]:
    if not isinstance(value, list):
        raise InvalidFile(f"{value!r:.60} is no list of tensors")
    return tuple(None if item is None else _tensor(item) for item in value)


def _tensor(value: object) -> TensorSpec:
    if not isinstance(value, list) or len(value) != 4:
        raise InvalidFile(f"{value!r:.60} is not shape, dtype, layout and strides")
    shape, dtype, layout, strides = value
    if not isinstance(dtype, str) or not isinstance(layout, str):
        raise InvalidFile(f"{value!r:.60} has no dtype or no layout")
    return TensorSpec(whole_numbers(shape), dtype, layout, whole_numbers(strides))


def whole_numbers(value: object) -> tuple[int, ...]:
    """A shape, a grid or a block; raises `InvalidFile` if it is not one."""
    if not isinstance(value, list) or not all(type(item) is int and item >= 0 for item in value):
        raise InvalidFile(f"{value!r:.60} is no list of whole numbers")
    return tuple(value)


# -- rows -----------------------------------------------------------------------------------------------------------------


def environment_record(environment: Environment) -> Record:
    return asdict(environment)


def environment_of(record: AnyRecord) -> Environment:
    return Environment(**{field.name: record[field.name] for field in fields(Environment)})


def measurement_record(measurement: Measurement) -> Record:
    record: Record = {name: getattr(measurement, name) for name in _PLAIN}
    record["structure"] = _encode_mapping(measurement.structure)
    record["settings"] = _encode_mapping(measurement.settings)
    record["input_shape"] = list(measurement.input_shape)
    for name in SPREADS:
        record |= _spread_record(name, getattr(measurement, name))
    return record


def measurement_of(record: AnyRecord) -> Measurement:
    values: Record = {name: record[name] for name in _PLAIN}
    values["structure"] = decode_mapping(record["structure"])
    values["settings"] = decode_mapping(record["settings"])
    values["input_shape"] = whole_numbers(record["input_shape"])
    values["status"] = Status(record["status"])
    for name in SPREADS:
        mean = record[f"{name}_mean"]
        values[name] = None if mean is None else Spread(mean, record[f"{name}_deviation"])
    return Measurement(**values)


def kernel_record(row: KernelRow) -> Record:
    """Without the operator, which has a table of its own."""
    record: Record = {name: getattr(row, name) for name in ("phase", "position", "kernel", "calls")}
    return record | _spread_record("seconds", row.seconds) | {"grid": list(row.grid), "block": list(row.block)}


def kernel_of(record: AnyRecord, operator: Operator) -> KernelRow:
    plain = {name: record[name] for name in ("phase", "position", "kernel", "calls")}
    seconds = Spread(record["seconds_mean"], record["seconds_deviation"])
    grid, block = whole_numbers(record["grid"]), whole_numbers(record["block"])
    return KernelRow(operator=operator, seconds=seconds, grid=grid, block=block, **plain)


def host_record(row: HostRow) -> Record:
    return {"phase": row.phase, "calls": row.calls} | _spread_record("seconds", row.seconds)


def host_of(record: AnyRecord, operator: Operator) -> HostRow:
    seconds = Spread(record["seconds_mean"], record["seconds_deviation"])
    return HostRow(operator=operator, phase=record["phase"], calls=record["calls"], seconds=seconds)


def _spread_record(name: str, spread: Spread | None) -> Record:
    mean, deviation = (None, None) if spread is None else (spread.mean, spread.deviation)
    return {f"{name}_mean": mean, f"{name}_deviation": deviation}

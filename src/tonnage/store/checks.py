"""What a record must be before it is stored, whether a run or a file brings it."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeAlias

from sqlalchemy import JSON, BigInteger, Column, Double, String

from tonnage.errors import InvalidFile
from tonnage.store import records
from tonnage.store.records import Record
from tonnage.store.rows import Status
from tonnage.store.tables import Base, Measurements, UtcTime

Check: TypeAlias = Callable[[Any], object]

_MOST = 2**63 - 1  # what both databases hold
_MAY_BE_NEGATIVE = ("temperature_celsius",)
_SHARES = ("utilisation",)


def checked(table: type[Base], record: Mapping[str, Any]) -> Record:
    """The record with its numbers as Python's own; raises `InvalidFile` that names column and value."""
    result: Record = {}
    for name, nullable, check in _checks(table):
        value = record[name]
        if value is None and nullable:
            result[name] = None
            continue
        try:
            result[name] = check(value)
        except InvalidFile as error:
            raise InvalidFile(f"{name}: {error.message}") from None
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidFile(f"{name} is {value!r:.60}: {error}") from None
    if table is Measurements:
        _check_spreads(result)
    return result


def own_columns(table: type[Base]) -> list[Column[Any]]:
    """What the row says itself, without keys and digest."""
    return [
        column
        for column in table.__table__.columns
        if isinstance(column, Column) and column.name not in ("id", "digest") and not column.foreign_keys
    ]


@cache
def _checks(table: type[Base]) -> list[tuple[str, bool, Check]]:
    return [(column.name, bool(column.nullable), _check_of(column)) for column in own_columns(table)]


def _check_of(column: Column[Any]) -> Check:
    if isinstance(column.type, JSON):
        return _JSON[column.name]
    if column.name == "status":
        return _status
    if isinstance(column.type, BigInteger):
        return _whole
    if isinstance(column.type, UtcTime):
        return _moment
    if isinstance(column.type, Double):
        return _finite if column.name in _MAY_BE_NEGATIVE else _share if column.name in _SHARES else _amount
    length = column.type.length if isinstance(column.type, String) else None
    return lambda value: _text(value, length)


def _amount(value: Any) -> float:
    number = _finite(value)
    if number < 0:
        raise ValueError("it must not be negative")
    return number


def _share(value: Any) -> float:
    number = _finite(value)
    if not 0 <= number <= 1:
        raise ValueError("it must be a share from 0 to 1")
    return number


def _finite(value: Any) -> float:
    if isinstance(value, bool | str | bytes):
        raise ValueError("it must be a number")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError("it must be a finite number")
    return number + 0.0  # SQLite knows no -0.0


def _whole(value: Any) -> int:
    if isinstance(value, bool):
        raise ValueError("it must be a whole number")
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError("it must be a whole number") from None
    if not 0 <= number <= _MOST:
        raise ValueError("it must not be negative" if number < 0 else "it is too large")
    return number


def _text(value: Any, length: int | None) -> str:
    if not isinstance(value, str):
        raise ValueError("it must be text")
    if "\0" in value:
        raise ValueError("it must not contain the character NUL")
    if length is not None and len(value) > length:
        raise ValueError(f"it must not be longer than {length} characters")
    value.encode()  # half of a surrogate pair has no UTF-8
    return str(value)


def _status(value: Any) -> str:
    if value not in list(Status):
        raise ValueError(f"it must be one of {', '.join(Status)}")
    return str(Status(value))


def _moment(value: Any) -> datetime:
    if not isinstance(value, datetime):
        raise ValueError("it must be a date and time")
    if value.tzinfo is None:
        raise ValueError("it must have a time zone")
    return value.astimezone(UTC)


def _numbers(value: Any) -> object:
    return list(records.whole_numbers(value))


def _attributes(value: Any) -> object:
    records.decode_mapping(value)
    return _storable(value)


def _spec(value: Any) -> object:
    records.operator_of({"name": "", "spec": value})
    return _storable(value)


def _storable(value: Any) -> object:
    records.canonical_json(value).encode()  # half of a surrogate pair has no UTF-8
    return value


_JSON: Mapping[str, Check] = {
    "structure": _attributes, "settings": _attributes, "spec": _spec,
    "input_shape": _numbers, "grid": _numbers, "block": _numbers,
}  # fmt: skip


def _check_spreads(record: Record) -> None:
    for name in records.SPREADS:
        mean, deviation = record[f"{name}_mean"], record[f"{name}_deviation"]
        if (mean is None) != (deviation is None):
            raise InvalidFile(f"{name} has a mean of {mean} and a deviation of {deviation}: give both or none")

"""Files of rows: CSV with the standard library, Parquet with pyarrow. The suffix of the name decides."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO, TypeAlias

from tonnage.errors import InvalidFile, MissingDependency, TonnageError
from tonnage.store.records import Record, canonical_json
from tonnage.store.writing import chunks

if TYPE_CHECKING:
    import pyarrow

SUFFIXES = (".csv", ".csv.gz", ".parquet")
_BATCH = 1000

Line: TypeAlias = tuple[int, list[object]]


class Kind(StrEnum):
    """What the cells of a column are."""

    TEXT = "text"
    WHOLE = "whole number"
    REAL = "number"
    JSON = "JSON"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class FileColumn:
    name: str
    kind: Kind
    required: bool = True


def suffix_of(name: str) -> str | None:
    """The suffix that says what a file is; None for all others."""
    return next((suffix for suffix in sorted(SUFFIXES, key=len, reverse=True) if name.endswith(suffix)), None)


def write_rows(path: Path, columns: Sequence[FileColumn], rows: Iterable[Record]) -> int:
    """Write a file; returns how many rows it got."""
    write = _write_parquet if path.suffix == ".parquet" else _write_csv
    return write(path, columns, rows)


def read_rows(path: Path) -> tuple[list[str], Iterator[Line]]:
    """The names of the columns, and the rows with their line (Parquet: row) numbers; raises `InvalidFile`."""
    read = _read_parquet if path.suffix == ".parquet" else _read_csv
    lines = _explained(path, read(path))
    _, names = next(lines, (0, []))
    if not names:
        raise InvalidFile(f"{path} is empty: not even a line of column names")
    return [str(name) for name in names], lines


def parse(kind: Kind, cell: object) -> object:
    """A cell's value; an empty one is None, unless it is text. Raises ValueError."""
    if kind is Kind.TEXT or not isinstance(cell, str):
        return cell
    return _PARSERS[kind](cell) if cell else None


def _parse_json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("it must be JSON") from None


def _parse_number(text: str, number: Callable[[str], object], what: str) -> object:
    try:
        return number(text)
    except ValueError:
        raise ValueError(f"it must be a {what}") from None


_PARSERS: Mapping[Kind, Callable[[str], object]] = {
    Kind.WHOLE: lambda text: _parse_number(text, int, "whole number"),
    Kind.REAL: lambda text: _parse_number(text, float, "number"),
    Kind.TIME: lambda text: _parse_number(text, datetime.fromisoformat, "time such as 2026-01-31T12:00:00+00:00"),
    Kind.JSON: _parse_json,
}


def _explained(path: Path, lines: Iterator[Line]) -> Iterator[Line]:
    try:
        yield from lines
    except TonnageError:
        raise
    except Exception as error:  # the decoders raise almost anything at damaged bytes; all of it means the same
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InvalidFile(f"{path} cannot be read: {reason}", "nothing was imported; export it again") from None


# -- CSV ------------------------------------------------------------------------------------------------------------------


def _open_text(path: Path, mode: Literal["rt", "wt"]) -> TextIO:
    encoding = "utf-8" if mode == "wt" else "utf-8-sig"  # spreadsheets put a mark before the first name
    if path.suffix == ".gz":
        return gzip.open(path, mode, encoding=encoding, newline="")
    return path.open(mode, encoding=encoding, newline="")


def _write_csv(path: Path, columns: Sequence[FileColumn], rows: Iterable[Record]) -> int:
    count = 0
    with _open_text(path, "wt") as file:
        writer = csv.writer(file)
        writer.writerow([column.name for column in columns])
        for count, row in enumerate(rows, 1):  # noqa: B007 - the last number is the count
            writer.writerow([_cell(column.kind, row[column.name]) for column in columns])
    return count


def _cell(kind: Kind, value: Any) -> object:
    if value is None:
        return ""
    if kind is Kind.JSON:
        return canonical_json(value)
    return value.isoformat() if kind is Kind.TIME else value


def _read_csv(path: Path) -> Iterator[Line]:
    csv.field_size_limit(2**31 - 1)  # an operator over all parameters of a network has a long description
    with _open_text(path, "rt") as file:
        reader = csv.reader(file, strict=True)
        start = 1
        for cells in reader:
            if cells:
                yield start, list(cells)
            start = reader.line_num + 1


# -- Parquet --------------------------------------------------------------------------------------------------------------


def _require_pyarrow() -> None:
    try:
        import pyarrow.parquet  # noqa: F401 - only to see whether it is there
    except ModuleNotFoundError:
        raise MissingDependency("Parquet files need the pyarrow package", "pip install 'tonnage[parquet]'") from None


def _schema(columns: Sequence[FileColumn]) -> pyarrow.Schema:
    import pyarrow

    types = {
        Kind.TEXT: pyarrow.string(), Kind.JSON: pyarrow.string(), Kind.WHOLE: pyarrow.int64(),
        Kind.REAL: pyarrow.float64(), Kind.TIME: pyarrow.timestamp("us", tz="UTC"),
    }  # fmt: skip
    return pyarrow.schema([pyarrow.field(column.name, types[column.kind]) for column in columns])


def _write_parquet(path: Path, columns: Sequence[FileColumn], rows: Iterable[Record]) -> int:
    _require_pyarrow()
    import pyarrow
    import pyarrow.parquet

    schema, count = _schema(columns), 0
    json_names = [column.name for column in columns if column.kind is Kind.JSON]
    with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for part in chunks(rows, 50 * _BATCH):
            flat = [row | {name: canonical_json(row[name]) for name in json_names} for row in part]
            writer.write_table(pyarrow.Table.from_pylist(flat, schema=schema))
            count += len(part)
    return count


def _read_parquet(path: Path) -> Iterator[Line]:
    _require_pyarrow()
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        names = list(file.schema_arrow.names)
        yield 0, list(names)
        number = 0
        for batch in file.iter_batches(_BATCH):
            for row in batch.to_pylist():
                number += 1
                yield number, [row[name] for name in names]

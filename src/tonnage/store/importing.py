"""Takes rows of files into the database, inside one transaction: what is good is added, what is known is passed over."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from sqlalchemy import Connection, select

from tonnage.errors import InvalidFile, NotFound
from tonnage.hardware import find_gpu
from tonnage.store.checks import checked
from tonnage.store.layout import LABELS, REFERENCES, file_columns
from tonnage.store.records import Record, canonical_json
from tonnage.store.tables import Base, Environments, Operators
from tonnage.store.tabular import FileColumn, Line, parse, read_rows
from tonnage.store.writing import (
    chunks,
    environment_row,
    find_ids,
    insert_missing,
    insert_rows,
    measurement_row,
    operator_row,
    table_of,
)

NamedRow: TypeAlias = tuple[str, Record]

_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A row that was not taken. `line` counts from 1, the line of names included; in Parquet it counts rows."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        unit = "row" if self.file.endswith(".parquet") else "line"
        return f"{self.file}, {unit} {self.line}: {self.reason}"


@dataclass(slots=True)
class Tally:
    """What became of the rows of one table."""

    added: int = 0
    known: int = 0
    refused: int = 0


@dataclass(slots=True)
class Importer:
    """One import. Files of environments and operators come first, then measurements, then what they name."""

    connection: Connection
    tallies: dict[str, Tally] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    unknown_gpus: set[str] = field(default_factory=set)
    _digests: dict[type[Base], dict[str, str]] = field(default_factory=lambda: {table: {} for table in LABELS})
    _ids: dict[type[Base], dict[str, int]] = field(default_factory=lambda: {table: {} for table in LABELS})

    def read(self, table: type[Base], path: Path) -> None:
        """Take in one file; raises `InvalidFile` if it cannot be read to its end."""
        names, lines = read_rows(path)
        columns = _columns(table, path, names)
        tally = self.tallies.setdefault(table.__tablename__, Tally())
        convert = self._labelled if table in LABELS else self._detail
        rows = self._good(path.name, lines, tally, lambda cells: convert(table, _record(table, columns, cells)))
        add = self._add_labelled if table in LABELS else self._add_details
        add(table, rows, tally)

    def _good(
        self, file: str, lines: Iterable[Line], tally: Tally, convert: Callable[[list[object]], NamedRow]
    ) -> Iterator[NamedRow]:
        for number, cells in lines:
            try:
                row = convert(cells)
            except InvalidFile as error:
                tally.refused += 1
                self.refusals.append(Refusal(file, number, error.message))
            else:
                yield row

    # -- rows with a digest -----------------------------------------------------------------------------------------------

    def _labelled(self, table: type[Base], record: Record) -> NamedRow:
        """The row by its digest. Labels in a file are only names; the digest is computed from what the row says."""
        digest, row = self._digested(table, record)
        label = str(record[LABELS[table]] or "")
        if label and self._digests[table].setdefault(label, digest) != digest:
            raise InvalidFile(f"{LABELS[table]} {label!r:.80} was given before, with other values")
        return digest, row

    def _digested(self, table: type[Base], record: Record) -> NamedRow:
        if table is Operators:
            return operator_row(record)
        if table is Environments:
            named = environment_row(record)
            self._look_up_gpu(record["gpu"])
            return named
        environment, key = self._find(Environments, record)
        digest, row = measurement_row(record, environment)
        return digest, row | {"environment_id": key}

    def _look_up_gpu(self, name: str) -> None:
        try:
            find_gpu(name)
        except NotFound:
            if name:  # runs on a CPU have none
                self.unknown_gpus.add(name)

    def _find(self, table: type[Base], record: Record) -> tuple[str, int]:
        """Digest and key of the row that a label means: one of these files, or one of the database."""
        label, ids = str(record[LABELS[table]]), self._ids[table]
        digest = self._digests[table].get(label, label)
        if digest not in ids and _DIGEST.fullmatch(digest):
            ids.update(find_ids(self.connection, table, [digest]))
        if digest not in ids:
            raise InvalidFile(f"{LABELS[table]} {label!r:.80} is neither in these files nor in the database")
        return digest, ids[digest]

    def _add_labelled(self, table: type[Base], rows: Iterable[NamedRow], tally: Tally) -> None:
        for chunk in chunks(rows):
            ids, added = insert_missing(self.connection, table, dict(chunk))
            self._ids[table].update(ids)
            tally.added += len(added)
            tally.known += len(chunk) - len(added)

    # -- rows of measurements ---------------------------------------------------------------------------------------------

    def _detail(self, table: type[Base], record: Record) -> NamedRow:
        """The row by everything it says."""
        keys = {f"{LABELS[other]}_id": self._find(other, record)[1] for other in REFERENCES[table]}
        row = checked(table, record) | keys
        return canonical_json(row), row

    def _add_details(self, table: type[Base], rows: Iterable[NamedRow], tally: Tally) -> None:
        """A measurement may have equal rows: as many are known as it has already, those beyond are added."""
        stored: dict[int, Counter[str]] = {}
        for chunk in chunks(rows):
            stored = self._stored(table, {row["measurement_id"] for _, row in chunk}, stored)
            fresh = [row for name, row in chunk if not _take(stored[row["measurement_id"]], name)]
            insert_rows(self.connection, table, fresh)
            tally.added += len(fresh)
            tally.known += len(chunk) - len(fresh)

    def _stored(
        self, table: type[Base], measurements: set[int], before: dict[int, Counter[str]]
    ) -> dict[int, Counter[str]]:
        """What the database holds of these measurements; others are forgotten, so that memory stays small."""
        kept = {key: before.get(key, Counter()) for key in measurements}
        source = table_of(table)
        columns = [column for column in source.c if column.name != "id"]
        for part in chunks(sorted(measurements - before.keys())):
            for row in self.connection.execute(select(*columns).where(source.c.measurement_id.in_(part))).mappings():
                kept[row["measurement_id"]][canonical_json(dict(row))] += 1
        return kept


def _take(counter: Counter[str], name: str) -> bool:
    """One of them, if there is one left."""
    found = counter[name] > 0
    counter[name] -= found
    return found


def _columns(table: type[Base], path: Path, names: list[str]) -> list[FileColumn]:
    """The file's columns in its own order; what may be empty may also be missing."""
    known, rows = {column.name: column for column in file_columns(table)}, table.__tablename__
    for name, times in Counter(names).items():
        if name not in known:
            raise InvalidFile(f"{path} has a column {name!r:.60} that {rows} do not have")
        if times > 1:
            raise InvalidFile(f"{path} has the column {name!r} twice")
    for name, column in known.items():
        if column.required and name not in names:
            raise InvalidFile(f"{path} has no column {name!r}, which {rows} need")
    return [known[name] for name in names]


def _record(table: type[Base], columns: list[FileColumn], cells: list[object]) -> Record:
    if len(cells) != len(columns):
        raise InvalidFile(f"it has {len(cells)} cells, the line of names has {len(columns)}")
    record: Record = {column.name: None for column in file_columns(table)}
    for column, cell in zip(columns, cells, strict=True):
        try:
            record[column.name] = parse(column.kind, cell)
        except ValueError as error:
            raise InvalidFile(f"{column.name} is {cell!r:.60}: {error}") from None
    return record

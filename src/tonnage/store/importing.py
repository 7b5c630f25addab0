"""Takes rows of files into the database, inside one transaction: what is good is added, what is known is passed over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select

from tonnage.errors import InvalidFile, NotFound
from tonnage.hardware import find_gpu
from tonnage.store.checks import checked
from tonnage.store.layout import LABELS, REFERENCES, file_columns
from tonnage.store.records import Record, canonical_json
from tonnage.store.tables import Base, Environments, Measurements, Operators
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
        rows = self._parsed(table, columns, path.name, lines, tally)
        if table in LABELS:
            self._add_labelled(table, path.name, rows, tally)
        else:
            self._add_details(table, path.name, rows, tally)

    def _parsed(
        self, table: type[Base], columns: list[FileColumn], file: str, lines: Iterable[Line], tally: Tally
    ) -> Iterator[tuple[int, Record]]:
        for number, cells in lines:
            try:
                record = _record(table, columns, cells)
            except InvalidFile as error:
                self._refuse(file, number, error, tally)
            else:
                yield number, record

    def _refuse(self, file: str, line: int, error: InvalidFile, tally: Tally) -> None:
        tally.refused += 1
        self.refusals.append(Refusal(file, line, error.message))

    # -- rows with a digest -----------------------------------------------------------------------------------------------

    def _add_labelled(self, table: type[Base], file: str, rows: Iterable[tuple[int, Record]], tally: Tally) -> None:
        for chunk in chunks(rows):
            good: dict[str, Record] = {}
            taken = 0
            for number, record in chunk:
                try:
                    digest, row = self._row(table, record)
                    self._remember(table, record[LABELS[table]], digest)
                except InvalidFile as error:
                    self._refuse(file, number, error, tally)
                    continue
                good[digest] = row
                taken += 1
            ids, added = insert_missing(self.connection, table, good)
            self._ids[table].update(ids)
            tally.added += len(added)
            tally.known += taken - len(added)

    def _row(self, table: type[Base], record: Record) -> tuple[str, Record]:
        if table is Operators:
            return operator_row(record)
        if table is Measurements:
            environment, key = self._named(Environments, record)
            digest, row = measurement_row(record, environment)
            return digest, row | {"environment_id": key}
        self._look_up_gpu(record["gpu"])
        return environment_row(record)

    def _remember(self, table: type[Base], label: str | None, digest: str) -> None:
        """Labels in a file are only names; the digest is computed from what the row says."""
        if label and self._digests[table].setdefault(label, digest) != digest:
            raise InvalidFile(f"{LABELS[table]} {label!r:.80} was given before, with other values")

    def _look_up_gpu(self, name: object) -> None:
        if isinstance(name, str) and name:
            try:
                find_gpu(name)
            except NotFound:
                self.unknown_gpus.add(name)

    def _named(self, table: type[Base], record: Mapping[str, Any]) -> tuple[str, int]:
        """Digest and key of the row that a label means: one of these files, or one of the database."""
        label = record[LABELS[table]]
        digest = self._digests[table].get(label, label) if isinstance(label, str) else ""
        ids = self._ids[table]
        if digest not in ids:
            ids.update(find_ids(self.connection, table, [digest]))
        if digest not in ids:
            raise InvalidFile(f"{LABELS[table]} {label!r:.80} is neither in these files nor in the database")
        return digest, ids[digest]

    # -- rows of measurements ---------------------------------------------------------------------------------------------

    def _add_details(self, table: type[Base], file: str, rows: Iterable[tuple[int, Record]], tally: Tally) -> None:
        """A measurement may have equal rows: as many are known as it has already, those beyond are added."""
        stored: dict[int, Counter[str]] = {}
        for chunk in chunks(rows):
            good = list(self._detail_rows(table, file, chunk, tally))
            stored = self._stored(table, {row["measurement_id"] for row in good}, stored)
            fresh = [row for row in good if not _take(stored[row["measurement_id"]], _fingerprint(row))]
            insert_rows(self.connection, table, fresh)
            tally.added += len(fresh)
            tally.known += len(good) - len(fresh)

    def _detail_rows(
        self, table: type[Base], file: str, chunk: Iterable[tuple[int, Record]], tally: Tally
    ) -> Iterator[Record]:
        for number, record in chunk:
            try:
                keys = {f"{LABELS[other]}_id": self._named(other, record)[1] for other in REFERENCES[table]}
                row = checked(table, record) | keys
            except InvalidFile as error:
                self._refuse(file, number, error, tally)
            else:
                yield row

    def _stored(
        self, table: type[Base], measurements: set[int], before: dict[int, Counter[str]]
    ) -> dict[int, Counter[str]]:
        """What the database holds of these measurements; others are forgotten, so that memory stays small."""
        kept = {key: before.get(key, Counter()) for key in measurements}
        source = table_of(table)
        columns = [column for column in source.c if column.name != "id"]
        for part in chunks(sorted(measurements - before.keys())):
            for row in self.connection.execute(select(*columns).where(source.c.measurement_id.in_(part))).mappings():
                kept[row["measurement_id"]][_fingerprint(dict(row))] += 1
        return kept


def _take(counter: Counter[str], name: str) -> bool:
    """One of them, if there is one left."""
    found = counter[name] > 0
    counter[name] -= found
    return found


def _fingerprint(row: Mapping[Any, Any]) -> str:
    return canonical_json(dict(row))


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

"""Export to and import from a folder with one file for each table; docs/reference/benchmark-database.md has the format."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection

from tonnage.errors import NotFound, UsageError
from tonnage.store.database import Database
from tonnage.store.importing import Importer, Refusal, Tally
from tonnage.store.layout import file_columns, file_rows
from tonnage.store.queries import stream
from tonnage.store.records import Record
from tonnage.store.tables import TABLES, Base
from tonnage.store.tabular import SUFFIXES, suffix_of, write_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """What became of the rows, by table; the refused ones; and GPUs that the catalogue does not know."""

    tables: Mapping[str, Tally]
    refusals: tuple[Refusal, ...]
    unknown_gpus: tuple[str, ...]

    @property
    def added(self) -> int:
        return sum(tally.added for tally in self.tables.values())

    @property
    def known(self) -> int:
        return sum(tally.known for tally in self.tables.values())


def export_rows(database: Database, path: str | Path) -> dict[str, int]:
    """Write everything into a new folder, as of one moment; returns the rows of each table.

    The folder's suffix says what files it gets: `rows.parquet`, `rows.csv.gz`, or CSV. It appears complete or not at all.
    """
    target = Path(path).expanduser()
    suffix = suffix_of(target.name) or (".csv" if not target.suffix else None)
    if suffix is None:
        raise UsageError(f"{target.name} says no format", f"end the name in one of {', '.join(SUFFIXES)}")
    with _new_folder(target) as folder, database.reading() as connection:
        return {
            table.__tablename__: write_rows(
                folder / f"{table.__tablename__}{suffix}", file_columns(table), _records(connection, table)
            )
            for table in TABLES
        }


def _records(connection: Connection, table: type[Base]) -> Iterator[Record]:
    for part in stream(connection, file_rows(table)):
        for row in part:
            yield {str(name): value for name, value in row.items()}


@contextmanager
def _new_folder(target: Path) -> Iterator[Path]:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} exists already", "name a new folder; nothing is ever overwritten")
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        partial.mkdir()
        yield partial
        partial.replace(target)
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def import_rows(database: Database, path: str | Path) -> ImportReport:
    """Take in a folder that `export_rows` made, or one file of it.

    Rows that are there already are passed over; wrong ones are refused, each with its reason; good ones are kept. A file
    that cannot be read raises `InvalidFile`, and nothing is imported.
    """
    files = find_files(Path(path).expanduser())
    with database.writing() as connection:
        importer = Importer(connection)
        for table, file in files:
            importer.read(table, file)
    return ImportReport(
        tables=importer.tallies,
        refusals=tuple(importer.refusals),
        unknown_gpus=tuple(sorted(importer.unknown_gpus)),
    )


def find_files(path: Path) -> list[tuple[type[Base], Path]]:
    """Tables with their files, in the order in which rows name each other; raises `NotFound` or `UsageError`."""
    if not path.exists():
        raise NotFound(f"there is no folder or file {path}")
    folder = path if path.is_dir() else path.parent
    named = [(table, folder / f"{table.__tablename__}{suffix}") for table in TABLES for suffix in SUFFIXES]
    files = [(table, file) for table, file in named if file == path or (path.is_dir() and file.is_file())]
    if not files:
        names = ", ".join(table.__tablename__ for table in TABLES)
        what = "has none of the files of an export" if path.is_dir() else "is not called like a file of an export"
        raise UsageError(f"{path} {what}", f"they are called {names}, and end in {', '.join(SUFFIXES)}")
    return files

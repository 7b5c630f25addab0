"""Brings a database to the tables that this version of Tonnage knows, or refuses and leaves it as it is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.exc import OperationalError

from tonnage.errors import InvalidFile
from tonnage.store.location import BUSY_SECONDS, Location

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0003"  # the newest revision in migrations/versions; here, so that opening needs no Alembic
VERSION_TABLE = "tonnage_version"
_LOCK = 0x746F6E6E616765  # "tonnage": one writer at a time, as in SQLite, so that no two wait for each other


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that writes: all of it is kept, or nothing. Other writers wait until it ends."""
    with engine.connect().execution_options(writes=True) as connection, connection.begin():
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        yield connection


def migrate(engine: Engine, location: Location) -> None:
    """Look before touching: a database that is not ours, or is newer than we are, stays as it is."""
    with engine.connect() as connection:
        current = _revision(connection, location)
        _check_known(current, location)
    if location.path:
        _use_write_ahead_log(engine)
    if current != HEAD:
        with writing(engine) as connection:
            if _revision(connection, location) != HEAD:  # another process may have been quicker
                _upgrade(connection)


def _revision(connection: Connection, location: Location) -> str | None:
    tables = inspect(connection).get_table_names()
    if VERSION_TABLE in tables:
        revision = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
        return None if revision is None else str(revision)
    if tables:
        raise InvalidFile(
            f"{location.name} is not a benchmark database: it has a table {sorted(tables)[0]!r} and no {VERSION_TABLE!r}",
            "nothing was changed; give Tonnage a file, a database or a schema of its own",
        )
    return None


def _check_known(revision: str | None, location: Location) -> None:
    if revision in (None, HEAD):
        return
    from alembic.script import ScriptDirectory

    if revision not in {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}:
        raise InvalidFile(
            f"{location.name} was written by a newer Tonnage (its tables are of version {revision}, this one knows {HEAD})",
            "nothing was changed; upgrade Tonnage: pip install --upgrade tonnage",
        )


def _upgrade(connection: Connection) -> None:
    from alembic import command

    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "tonnage.store:migrations")
    return config


def _use_write_ahead_log(engine: Engine) -> None:
    """Readers and a writer need not wait for each other then. The file remembers it."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            _ask_for_write_ahead_log(engine)
            return
        except OperationalError as error:  # SQLite does not wait for others here, whatever its timeout says
            if getattr(error.orig, "sqlite_errorname", "") != "SQLITE_BUSY" or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _ask_for_write_ahead_log(engine: Engine) -> None:
    with engine.connect() as connection:
        cursor = connection.connection.cursor()  # outside of any transaction, where alone it may be changed
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.close()

"""Where the benchmark database is, and how to connect to it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import ConnectionPoolEntry

from tonnage.errors import MissingDependency, NotFound, UsageError
from tonnage.store.records import canonical_json

VARIABLE = "TONNAGE_DATABASE"
BUSY_SECONDS = 60
_CONNECT_SECONDS = 10
_POSTGRES = ("postgresql", "postgres", "postgresql+psycopg")


@dataclass(frozen=True, slots=True)
class Location:
    """A database that can be connected to. `name` is for messages and holds no password; `secrets` must not be shown."""

    url: URL
    name: str
    secrets: tuple[str, ...] = ()

    @property
    def path(self) -> Path | None:
        """The file, where there is one."""
        return Path(self.url.database or "") if self.url.drivername == "sqlite" else None


def default_path() -> Path:
    """Where the database is if nobody says otherwise."""
    from platformdirs import user_data_path

    return user_data_path("tonnage", appauthor=False) / "benchmark.db"


def find_location(location: str | Path | None, *, create: bool) -> Location:
    """What was asked for, else what the environment variable says, else the user's own database."""
    asked = location or os.environ.get(VARIABLE)
    if isinstance(asked, str) and "://" in asked:
        return _server(asked)
    path = Path(asked).expanduser().absolute() if asked else default_path()
    try:
        if create and not asked:
            path.parent.mkdir(parents=True, exist_ok=True)
        return _file(path, create)
    except OSError as error:
        raise UsageError(f"{path} cannot be a database: {error.strerror}") from None


def _file(path: Path, create: bool) -> Location:
    if path.is_dir():
        raise UsageError(f"{path} is a folder, not a database", f"name a file in it, such as {path / 'benchmark.db'}")
    if not path.exists() and not create:
        raise NotFound(
            f"there is no benchmark database {path}", "`tonnage bench run` and `tonnage bench import` make one"
        )
    if not path.parent.is_dir():
        raise NotFound(f"there is no folder {path.parent} for the database", f"mkdir -p {path.parent}")
    return Location(URL.create("sqlite", database=str(path)), str(path))


def _server(text: str) -> Location:
    """The text itself is never repeated in a message, since it may hold a password."""
    scheme = text.partition("://")[0].lower()
    if scheme not in _POSTGRES:
        hint = "give the path of a file for SQLite, or postgresql://USER@HOST/DATABASE"
        raise UsageError(f"databases of the kind {scheme}:// are not supported", hint)
    try:
        url = make_url(text).set(drivername="postgresql+psycopg")
    except (ArgumentError, ValueError):
        hint = "it must look like postgresql://USER:PASSWORD@HOST:PORT/DATABASE, special characters as %40"
        raise UsageError("the URL of the database cannot be read", hint) from None
    place = f"{url.host or 'the local socket'}{f':{url.port}' if url.port else ''}"
    secrets = [url.password, *(url.query.get(name) for name in ("password", "sslpassword"))]
    shown = f"PostgreSQL database {url.database or '(default)'} at {place}"
    return Location(url, shown, tuple(str(secret) for secret in secrets if secret))


def connect(location: Location) -> Engine:
    """An engine; nothing is contacted yet."""
    if location.path:
        engine = create_engine(
            location.url, connect_args={"timeout": BUSY_SECONDS}, json_serializer=canonical_json, hide_parameters=True
        )
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    arguments = {} if "connect_timeout" in location.url.query else {"connect_timeout": _CONNECT_SECONDS}
    try:
        return create_engine(location.url, connect_args=arguments, json_serializer=canonical_json, hide_parameters=True)
    except ImportError:
        message, hint = "PostgreSQL needs the psycopg package", "pip install 'tonnage[postgres]'"
        raise MissingDependency(message, hint) from None


def _set_up_sqlite(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    # Python's driver begins transactions too late and not around DDL: `_begin_sqlite` does it instead.
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys = ON")


def _begin_sqlite(connection: Connection) -> None:
    """Who will write says so at once: two readers that both turn to writing would fail instead of waiting."""
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

"""What databases complain about, as the errors of Tonnage: one sentence each, never with a password."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from tonnage.errors import InvalidFile, TonnageError, Unreachable, UsageError
from tonnage.store.location import BUSY_SECONDS, Location

_RECOVER = "nothing was changed; copy the file away and try: sqlite3 FILE .recover | sqlite3 NEW"


@contextmanager
def explained(location: Location) -> Iterator[None]:
    """Turn errors of the driver into errors of Tonnage. Their causes are cut off, since those may quote the URL."""
    try:
        yield
    except DBAPIError as error:
        explain = _sqlite if location.path else _postgres
        raise explain(location, error) from None
    except SQLAlchemyError as error:
        raise TonnageError(f"{location.name}: {_shown(location, error)}") from None


def _sqlite(location: Location, error: DBAPIError) -> TonnageError:
    code, name = getattr(error.orig, "sqlite_errorname", ""), location.name
    if code == "SQLITE_NOTADB":
        return InvalidFile(f"{name} is not a SQLite database", "nothing was changed; name another file")
    if code.startswith(("SQLITE_CORRUPT", "SQLITE_IOERR_SHORT_READ")):
        return InvalidFile(f"the database {name} is damaged: {_shown(location, error)}", _RECOVER)
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        message = f"another process has been writing to {name} for more than {BUSY_SECONDS} s"
        return Unreachable(message, "try again later, or use PostgreSQL for many writers")
    if code.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH")):
        return UsageError(f"{name} may not be written", "look at the permissions of the file and its folder")
    if code == "SQLITE_FULL":
        return TonnageError(f"the disk is full: nothing was written to {name}", "make room, then try again")
    return TonnageError(f"the database {name} failed: {_shown(location, error)}")


def _postgres(location: Location, error: DBAPIError) -> TonnageError:
    reason, state = _shown(location, error), getattr(error.orig, "sqlstate", None) or ""
    # No state: nobody answered. Classes 08, 28, 3D, 53, 57: connection, authorisation, catalogue, resources, operator.
    if not state or state[:2] in ("08", "28", "3D", "53", "57"):
        hint = "is the server running, and are host, port, user and password right?"
        return Unreachable(f"the {location.name} does not answer: {reason}", hint)
    if state == "42501":
        return UsageError(f"the {location.name} refuses: {reason}", "the user needs the right to create tables there")
    return TonnageError(f"the {location.name} failed: {reason}")


def _shown(location: Location, error: SQLAlchemyError) -> str:
    """The driver's own words, on one line, without secrets."""
    text = " ".join(str(getattr(error, "orig", None) or error).split())
    for secret in sorted(location.secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text[:300]

"""Opening a benchmark database: where it is, whose it is, and what is done to it."""

import os
import sqlite3
import subprocess
import sys
import traceback
from pathlib import Path

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from postgres_server import PASSWORD, PostgresServer
from sqlalchemy import text
from store_examples import H200, kernel, measurement

from tonnage.errors import InvalidFile, MissingDependency, NotFound, TonnageError, Unreachable, UsageError
from tonnage.store import migrate
from tonnage.store.database import Database, open_database
from tonnage.store.location import default_path
from tonnage.store.tables import Base


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


# -- where it is ----------------------------------------------------------------------------------------------------------


def test_without_a_location_the_database_is_among_the_users_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("TONNAGE_DATABASE", raising=False)
    with pytest.raises(NotFound):
        open_database(create=False)
    with open_database() as database:
        assert database.name == str(default_path())
    assert default_path().is_relative_to(tmp_path)
    assert default_path().parts[-2:] == ("tonnage", "benchmark.db")


def test_an_environment_variable_names_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TONNAGE_DATABASE", str(tmp_path / "mine.db"))
    with open_database() as database:
        assert database.name == str(tmp_path / "mine.db")


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        open_database(tmp_path)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no folder"):
        open_database(tmp_path / "missing" / "benchmark.db")


def test_a_missing_file_is_not_made_by_those_who_only_look(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        open_database(tmp_path / "benchmark.db", create=False)
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_no_file_can_have_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be a database"):
        open_database(tmp_path / ("x" * 300))


@pytest.mark.parametrize("name", ["with space.db", "100%.db", "what?.db", "ümlaut.db", ":memory:"])
def test_any_name_is_a_file(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    open_database(name).close()
    assert (tmp_path / name).is_file()


# -- whose it is ----------------------------------------------------------------------------------------------------------


def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path: Path) -> None:
    path = write(tmp_path / "notes.txt", b"these are my notes, and no database at all\n" * 100)
    before = path.read_bytes()
    with pytest.raises(InvalidFile, match="is not a SQLite database"):
        open_database(path)
    assert path.read_bytes() == before


def test_an_empty_file_becomes_a_database(tmp_path: Path) -> None:
    with open_database(write(tmp_path / "empty.db", b"")) as database:
        assert database.add(H200, measurement())


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_a_truncated_database_is_left_as_it_is(tmp_path: Path, share: float) -> None:
    path = tmp_path / "benchmark.db"
    with open_database(path) as database:
        database.add(H200, measurement(), [kernel()] * 200)
    whole = path.read_bytes()
    write(path, whole[: int(len(whole) * share)])
    with pytest.raises(InvalidFile, match="damaged") as caught, open_database(path) as database:
        list(database.kernels())
    assert "recover" in caught.value.hint
    assert path.read_bytes() == whole[: int(len(whole) * share)]


def test_a_database_with_a_spoilt_page_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "benchmark.db"
    with open_database(path) as database:
        database.add(H200, measurement(), [kernel()] * 2000)
    whole = path.read_bytes()
    spoilt = write(path, whole[:8192] + b"\xff" * (len(whole) - 8192)).read_bytes()
    with pytest.raises(InvalidFile, match="damaged"), open_database(path) as database:
        list(database.kernels())
    assert path.read_bytes() == spoilt


def test_a_database_of_something_else_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE runs (id INTEGER)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(InvalidFile, match="is not a benchmark database: it has a table 'runs'"):
        open_database(path)
    assert path.read_bytes() == before


def test_a_newer_database_is_refused(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_database(location) as database:
        database.add(H200, measurement())
        with database.writing() as connection:
            connection.execute(text("UPDATE tonnage_version SET version_num = '9999'"))
    before = Path(location).read_bytes() if Path(location).exists() else b""
    with pytest.raises(InvalidFile, match="written by a newer Tonnage") as caught:
        open_database(location)
    assert "upgrade Tonnage" in caught.value.hint
    assert before == (Path(location).read_bytes() if before else b"")
    monkeypatch.setattr(migrate, "HEAD", "9999")
    with open_database(location) as database:
        assert database.counts()["measurements"] == 1


def test_a_postgresql_database_of_something_else_is_refused(postgres: PostgresServer) -> None:
    location = postgres.new_database()
    with psycopg.connect(location) as connection:
        connection.execute("CREATE TABLE runs (id INTEGER)")
    with pytest.raises(InvalidFile, match="it has a table 'runs'"):
        open_database(location)


# -- what is done to it ---------------------------------------------------------------------------------------------------


def test_migrations_make_the_tables_of_the_code(database: Database) -> None:
    with database.reading() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": migrate.VERSION_TABLE, "compare_server_default": True}
        )
        assert compare_metadata(context, Base.metadata) == []


def test_the_newest_revision_is_the_one_that_opening_looks_for() -> None:
    assert ScriptDirectory.from_config(migrate._config()).get_current_head() == migrate.HEAD


def test_opening_a_current_database_needs_no_alembic_at_work(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    open_database(location).close()
    monkeypatch.delattr(migrate, "_upgrade")
    open_database(location).close()


def test_sqlite_writes_ahead_and_keeps_references(tmp_path: Path) -> None:
    with open_database(tmp_path / "benchmark.db") as database, database.reading() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA foreign_keys")).scalar() == 1
        assert connection.execute(text("PRAGMA busy_timeout")).scalar() == 60_000


def test_missing_packages_are_named() -> None:
    for name in ("sqlalchemy", "alembic"):
        code = f"import sys; sys.modules[{name!r}] = None; import tonnage.store.database"
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert f"MissingDependency: the benchmark database needs the package {name}" in result.stderr


def test_a_missing_driver_of_postgresql_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingDependency) as caught:
        open_database("postgresql://localhost/x")
    assert caught.value.hint == "pip install 'tonnage[postgres]'"


# -- servers that do not answer, and secrets ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("postgresql://user:hunter2@127.0.0.1:1/x", Unreachable),
        ("postgres://user:hunter2@127.0.0.1:1/x", Unreachable),
        ("postgresql://127.0.0.1:1/x?user=me&password=hunter2", Unreachable),
        ("postgresql://user:hunter2@no-such-host.invalid/x", Unreachable),
        ("postgresql://user:hunter2@127.0.0.1:port/x", UsageError),
        ("postgresql://user:hunter2@127.0.0.1:1/x?sslmode=hunter2", TonnageError),
        ("postgresql://user:hunter2@127.0.0.1:1/x?nonsense=1", TonnageError),
        ("mysql://user:hunter2@127.0.0.1/x", UsageError),
        ("postgresql+asyncpg://user:hunter2@127.0.0.1/x", UsageError),
    ],
)
def test_a_password_is_never_shown(url: str, kind: type[TonnageError]) -> None:
    with pytest.raises(kind) as caught:
        open_database(url)
    shown = "".join(traceback.format_exception(caught.value)) + caught.value.message + caught.value.hint
    assert "hunter2" not in shown


def test_a_wrong_password_is_an_unreachable_server_and_not_shown(postgres: PostgresServer) -> None:
    url = f"postgresql://tonnage:hunter2@127.0.0.1:{postgres.port}/postgres"
    with pytest.raises(Unreachable, match="authentication failed") as caught:
        open_database(url)
    assert "hunter2" not in caught.value.message


def test_a_missing_database_is_an_unreachable_server(postgres: PostgresServer) -> None:
    with pytest.raises(Unreachable, match="does not exist") as caught:
        open_database(postgres.url("nowhere"))
    assert PASSWORD not in "".join(traceback.format_exception(caught.value))


def test_the_name_of_a_database_holds_no_password(postgres: PostgresServer) -> None:
    with open_database(postgres.new_database()) as database:
        assert PASSWORD not in database.name
        assert PASSWORD not in repr(database)
        assert f"127.0.0.1:{postgres.port}" in database.name


def test_a_user_who_may_only_read_is_told_so(postgres: PostgresServer) -> None:
    location = postgres.new_database()
    with psycopg.connect(location) as connection:
        connection.execute("CREATE ROLE reader LOGIN PASSWORD 'hunter2'")
    reader = location.replace(location.split("@")[0], "postgresql://reader:hunter2")
    with pytest.raises(UsageError, match="permission denied"):
        open_database(reader)


def test_a_file_that_may_not_be_written_can_still_be_read(tmp_path: Path) -> None:
    path = tmp_path / "benchmark.db"
    open_database(path).close()
    path.chmod(0o444)
    if os.access(path, os.W_OK):
        pytest.skip("this user may write everywhere")
    with open_database(path) as database:
        assert database.counts()["measurements"] == 0
        with pytest.raises(UsageError, match="may not be written"):
            database.add(H200, measurement())

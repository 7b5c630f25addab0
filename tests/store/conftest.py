"""Every test that asks for a `location` or a `database` runs on SQLite and on a real PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres_server import PostgresServer, find_binaries

from tonnage.store.database import Database, open_database


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    server = PostgresServer(binaries)
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", "postgresql"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a database may be made that does not exist yet."""
    if request.param == "sqlite":
        return str(tmp_path / "benchmark.db")
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_database()


@pytest.fixture
def database(location: str) -> Iterator[Database]:
    with open_database(location) as opened:
        yield opened

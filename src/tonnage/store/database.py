"""The benchmark database: opens it, adds measurements, answers questions about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self, Unpack

from tonnage.errors import MissingDependency, UsageError

try:
    import alembic  # noqa: F401 - needed as soon as a database is new
    from sqlalchemy import Connection, Engine, RowMapping, select
except ModuleNotFoundError as error:
    raise MissingDependency(
        f"the benchmark database needs the package {error.name}", "pip install 'tonnage[bench]'"
    ) from None

from tonnage.program.trace import Operator
from tonnage.store import queries, records
from tonnage.store.failures import explained
from tonnage.store.location import Location, connect, find_location
from tonnage.store.migrate import migrate, writing
from tonnage.store.queries import Conditions, Summary
from tonnage.store.rows import Environment, HostRow, KernelRow, Measurement, Status
from tonnage.store.tables import TABLES, Environments, Hosts, Kernels, Measurements
from tonnage.store.writing import Detail, chunks, environment_row, insert_missing, measurement_row, table_of

__all__ = ["Conditions", "Database", "Summary", "open_database"]

_FINAL = (Status.OK, Status.OUT_OF_MEMORY)  # running these again would teach nothing


def open_database(location: str | Path | None = None, *, create: bool = True) -> Database:
    """Open the database at a path or a `postgresql://` URL, and bring its tables up to date.

    Without a location: what the environment variable TONNAGE_DATABASE says, else the user's own. `create=False` raises
    `NotFound` where there is no file yet.
    """
    place = find_location(location, create=create)
    engine = connect(place)
    try:
        with explained(place):
            migrate(engine, place)
    except BaseException:
        engine.dispose()
        raise
    return Database(engine, place)


class Database:
    """An open benchmark database; a context manager that closes it. Made by `open_database`."""

    def __init__(self, engine: Engine, location: Location) -> None:
        self._engine = engine
        self._location = location

    @property
    def name(self) -> str:
        """Where it is, for messages: without a password."""
        return self._location.name

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back; may be repeated."""
        self._engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection on which all questions see the same moment."""
        with explained(self._location), self._engine.connect() as connection:
            if self._engine.dialect.name == "postgresql":
                connection.execution_options(isolation_level="REPEATABLE READ")
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction: all that happens in it is kept, or nothing."""
        with explained(self._location), writing(self._engine) as connection:
            yield connection

    # -- writing ----------------------------------------------------------------------------------------------------------

    def add(
        self,
        environment: Environment,
        measurement: Measurement,
        kernels: Iterable[KernelRow] = (),
        hosts: Iterable[HostRow] = (),
    ) -> bool:
        """Add one measurement with its rows, in one transaction; False if this very measurement is there already."""
        home, home_row = environment_row(records.environment_record(environment))
        name, row = measurement_row(records.measurement_record(measurement), home)
        details = (Detail.of_kernels(kernels), Detail.of_hosts(hosts))
        with self.writing() as connection:
            homes, _ = insert_missing(connection, Environments, {home: home_row})
            ids, added = insert_missing(connection, Measurements, {name: row | {"environment_id": homes[home]}})
            if added:
                for detail in details:
                    detail.insert(connection, ids[name])
        return bool(added)

    def remove(
        self,
        *,
        environment: Environment | None = None,
        keys: Iterable[str] | None = None,
        **conditions: Unpack[Conditions],
    ) -> int:
        """Remove measurements with all their rows, such as failed ones that are run again; returns how many."""
        where = queries.where(conditions, environment)
        if not where and keys is None:
            raise UsageError("removing measurements needs a condition: without one it would remove all of them")
        with self.writing() as connection:
            if keys is None:
                return queries.remove(connection, where)
            return sum(queries.remove(connection, [*where, Measurements.key.in_(part)]) for part in chunks(keys))

    # -- reading ----------------------------------------------------------------------------------------------------------

    def measurements(self, **conditions: Unpack[Conditions]) -> Iterator[tuple[Environment, Measurement]]:
        """The measurements in the order in which they were added, read as they are asked for."""
        statement = queries.of_measurements(select(table_of(Measurements)), conditions).order_by(Measurements.id)
        with self.reading() as connection:
            environments = queries.environments(connection)
            for part in queries.stream(connection, statement):
                for row in part:
                    yield environments[row["environment_id"]], records.measurement_of(row)

    def kernels(self, **conditions: Unpack[Conditions]) -> Iterator[tuple[Environment, str, KernelRow]]:
        """Each kernel with its environment and the key of its measurement."""
        for environment, row, operator in self._details(Kernels, conditions):
            yield environment, row["key"], records.kernel_of(row, operator)

    def hosts(self, **conditions: Unpack[Conditions]) -> Iterator[tuple[Environment, str, HostRow]]:
        """Each operator's time on the host, with its environment and the key of its measurement."""
        for environment, row, operator in self._details(Hosts, conditions):
            yield environment, row["key"], records.host_of(row, operator)

    def _details(
        self, table: type[Kernels | Hosts], conditions: Conditions
    ) -> Iterator[tuple[Environment, RowMapping, Operator]]:
        with self.reading() as connection:
            environments, cache = queries.environments(connection), queries.OperatorCache(connection)
            for part in queries.stream(connection, queries.of_operators(table, conditions)):
                operators = cache.load({row["operator_id"] for row in part})
                for row in part:
                    yield environments[row["environment_id"]], row, operators[row["operator_id"]]

    def known_keys(
        self, environment: Environment, campaign: str | None = None, statuses: Iterable[Status] = _FINAL
    ) -> set[str]:
        """Keys of what need not be run again in this environment: it worked, or there was too little memory."""
        where = queries.where({"campaign": campaign}, environment)
        statement = select(Measurements.key).join(Environments, Environments.id == Measurements.environment_id)
        with self.reading() as connection:
            return set(connection.execute(statement.where(*where, Measurements.status.in_(tuple(statuses)))).scalars())

    def counts(self) -> dict[str, int]:
        """Rows in each table."""
        with self.reading() as connection:
            return {table.__tablename__: queries.count(connection, table) for table in TABLES}

    def summary(self, **conditions: Unpack[Conditions]) -> list[Summary]:
        """Measurements counted by GPU, family and status, in that order."""
        with self.reading() as connection:
            return queries.summarise(connection, conditions)

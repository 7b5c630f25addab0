"""Questions to the tables, on a connection that the caller has opened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias, TypedDict

from sqlalchemy import ColumnElement, Connection, RowMapping, Select, Subquery, delete, func, select

from tonnage.program.trace import Operator
from tonnage.store import records
from tonnage.store.rows import Environment, Status
from tonnage.store.tables import Base, Environments, Hosts, Kernels, Measurements, Operators
from tonnage.store.writing import chunks, environment_row, table_of

Where: TypeAlias = list[ColumnElement[bool]]

_STREAMED_ROWS = 1000


class Conditions(TypedDict, total=False):
    """Which measurements; what is left out or None does not matter."""

    gpu: str | None
    family: str | None
    campaign: str | None
    status: Status | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The measurements of one GPU, family and status, counted."""

    gpu: str
    family: str
    status: Status
    measurements: int
    kernels: int
    hosts: int
    first_at: datetime
    last_at: datetime


def where(conditions: Conditions, environment: Environment | None = None) -> Where:
    """The conditions in SQL, for measurements joined with environments."""
    columns = {
        Environments.gpu: conditions.get("gpu"),
        Measurements.family: conditions.get("family"),
        Measurements.campaign: conditions.get("campaign"),
        Measurements.status: conditions.get("status"),
    }
    if environment is not None:
        columns[Environments.digest] = environment_row(records.environment_record(environment))[0]
    return [column == str(value) for column, value in columns.items() if value is not None]


def of_measurements(statement: Select[Any], conditions: Conditions) -> Select[Any]:
    """A question about measurements, limited to some of them."""
    joined = statement.join(Environments, Environments.id == Measurements.environment_id)
    return joined.where(*where(conditions))


def of_operators(table: type[Kernels | Hosts], conditions: Conditions) -> Select[Any]:
    """Kernels or hosts with key and environment of their measurement."""
    columns = (table_of(table), Measurements.key, Measurements.environment_id)
    joined = select(*columns).join(Measurements, Measurements.id == table.measurement_id)
    return of_measurements(joined, conditions).order_by(table.id)


def stream(connection: Connection, statement: Select[Any]) -> Iterator[Sequence[RowMapping]]:
    """The rows in parts, so that a database may be larger than memory."""
    result = connection.execute(statement.execution_options(yield_per=_STREAMED_ROWS))
    yield from result.mappings().partitions()


def environments(connection: Connection) -> dict[int, Environment]:
    rows = connection.execute(select(table_of(Environments))).mappings()
    return {row["id"]: records.environment_of(row) for row in rows}


class OperatorCache:
    """Operators by key. Many rows name the same one, which is read and decoded once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: dict[int, Operator] = {}

    def load(self, keys: set[int]) -> Mapping[int, Operator]:
        """At least the operators with these keys."""
        for chunk in chunks(sorted(keys - self._known.keys())):
            rows = self._connection.execute(select(table_of(Operators)).where(Operators.id.in_(chunk))).mappings()
            self._known.update({row["id"]: records.operator_of(row) for row in rows})
        return self._known


def count(connection: Connection, table: type[Base]) -> int:
    return connection.execute(select(func.count()).select_from(table_of(table))).scalar_one()


def summarise(connection: Connection, conditions: Conditions) -> list[Summary]:
    """Measurements counted by GPU, family and status, in that order."""
    groups = (Environments.gpu, Measurements.family, Measurements.status)
    times = (func.min(Measurements.measured_at), func.max(Measurements.measured_at))
    details = [_rows_of_each(Kernels), _rows_of_each(Hosts)]
    sums = [func.coalesce(func.sum(detail.c.row_count), 0) for detail in details]
    statement = of_measurements(select(*groups, func.count(), *sums, *times).select_from(Measurements), conditions)
    for detail in details:
        statement = statement.outerjoin(detail, detail.c.measurement_id == Measurements.id)
    rows = connection.execute(statement.group_by(*groups)).all()
    # Sorted here: databases order text each in its own way.
    return [_summary(*row) for row in sorted(rows, key=lambda row: tuple(row[:3]))]


def _rows_of_each(table: type[Kernels | Hosts]) -> Subquery:
    counted = select(table.measurement_id, func.count().label("row_count"))
    return counted.group_by(table.measurement_id).subquery()


def _summary(
    gpu: str, family: str, status: str, measurements: int, kernels: int, hosts: int, first: datetime, last: datetime
) -> Summary:
    return Summary(
        gpu=gpu, family=family, status=Status(status), measurements=measurements,
        kernels=int(kernels), hosts=int(hosts), first_at=first, last_at=last,
    )  # fmt: skip


def remove(connection: Connection, conditions: Where) -> int:
    """Kernels and hosts go with their measurements."""
    found = select(Measurements.id).join(Environments, Environments.id == Measurements.environment_id)
    return connection.execute(delete(Measurements).where(Measurements.id.in_(found.where(*conditions)))).rowcount

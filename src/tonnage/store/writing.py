"""Puts checked records into tables, inside a transaction that the caller has opened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Self, TypeVar

from sqlalchemy import Connection, Table, insert, select

from tonnage.program.trace import Operator
from tonnage.store import records
from tonnage.store.checks import checked
from tonnage.store.records import Record
from tonnage.store.rows import HostRow, KernelRow
from tonnage.store.tables import Base, Environments, Hosts, Kernels, Measurements, Operators

Item = TypeVar("Item")

CHUNK = 500  # values in one question: SQLite before 3.32 takes at most 999


def chunks(items: Iterable[Item], size: int = CHUNK) -> Iterator[list[Item]]:
    """The items in lists of that size."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def table_of(table: type[Base]) -> Table:
    found = table.__table__
    assert isinstance(found, Table)
    return found


def environment_row(record: Mapping[str, Any]) -> tuple[str, Record]:
    """Digest and checked record."""
    row = checked(Environments, record)
    return records.digest(row), row


def operator_row(record: Mapping[str, Any]) -> tuple[str, Record]:
    row = checked(Operators, record)
    return records.digest(row), row


def measurement_row(record: Mapping[str, Any], environment: str) -> tuple[str, Record]:
    """The same measurement in another environment (named by its digest) is another measurement."""
    row = checked(Measurements, record)
    return records.digest(environment, row), row


def find_ids(connection: Connection, table: type[Base], digests: Iterable[str]) -> dict[str, int]:
    """The keys of the rows that are there already."""
    columns, found = table_of(table).c, {}
    for chunk in chunks(digests):
        rows = connection.execute(select(columns.digest, columns.id).where(columns.digest.in_(chunk)))
        found.update({row.digest: row.id for row in rows})
    return found


def insert_missing(
    connection: Connection, table: type[Base], rows: Mapping[str, Record]
) -> tuple[dict[str, int], set[str]]:
    """Adds records by digest; returns the keys of all, and the digests that are new."""
    known = find_ids(connection, table, rows)
    missing = [name for name in rows if name not in known]
    insert_rows(connection, table, [{"digest": name, **rows[name]} for name in missing])
    return known | find_ids(connection, table, missing), set(missing)


def insert_rows(connection: Connection, table: type[Base], rows: Sequence[Record]) -> None:
    if rows:
        connection.execute(insert(table_of(table)), rows)


@dataclass(frozen=True, slots=True)
class Detail:
    """Kernels or hosts of one measurement, checked, each with the digest of its operator."""

    table: type[Base]
    rows: tuple[tuple[str, Record], ...]
    operators: Mapping[str, Record]

    @classmethod
    def of_kernels(cls, kernels: Iterable[KernelRow]) -> Self:
        rows = tuple(kernels)
        return cls._of(Kernels, [row.operator for row in rows], [records.kernel_record(row) for row in rows])

    @classmethod
    def of_hosts(cls, hosts: Iterable[HostRow]) -> Self:
        rows = tuple(hosts)
        return cls._of(Hosts, [row.operator for row in rows], [records.host_record(row) for row in rows])

    @classmethod
    def _of(cls, table: type[Base], operators: Sequence[Operator], rows: Sequence[Record]) -> Self:
        # Kernels of one operator mostly share the object, which is then looked at once.
        unique = {id(operator): operator for operator in operators}
        named = {key: operator_row(records.operator_record(operator)) for key, operator in unique.items()}
        digests = [named[id(operator)][0] for operator in operators]
        good = [checked(table, row) for row in rows]
        return cls(table, tuple(zip(digests, good, strict=True)), dict(named.values()))

    def insert(self, connection: Connection, measurement: int) -> None:
        ids, _ = insert_missing(connection, Operators, self.operators)
        keys = ({"measurement_id": measurement, "operator_id": ids[operator]} for operator, _ in self.rows)
        insert_rows(connection, self.table, [key | row for key, (_, row) in zip(keys, self.rows, strict=True)])

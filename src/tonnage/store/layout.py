"""The columns of exchanged files. Where a table has a number for another table's row, its file has that row's digest."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from sqlalchemy import JSON, BigInteger, Column, Double, Select, select

from tonnage.store.checks import own_columns
from tonnage.store.tables import Base, Environments, Hosts, Kernels, Measurements, Operators, UtcTime
from tonnage.store.tabular import FileColumn, Kind
from tonnage.store.writing import table_of

LABELS: Mapping[type[Base], str] = {
    Environments: "environment", Operators: "operator", Measurements: "measurement",
}  # fmt: skip
REFERENCES: Mapping[type[Base], tuple[type[Base], ...]] = {
    Measurements: (Environments,), Kernels: (Measurements, Operators), Hosts: (Measurements, Operators),
}  # fmt: skip


@cache
def file_columns(table: type[Base]) -> list[FileColumn]:
    """The label of the row itself (free to be left out), the labels of the rows it names, and what it says."""
    own = [FileColumn(LABELS[table], Kind.TEXT, required=False)] if table in LABELS else []
    named = [FileColumn(LABELS[other], Kind.TEXT) for other in REFERENCES.get(table, ())]
    said = [FileColumn(column.name, _kind(column), not column.nullable) for column in own_columns(table)]
    return [*own, *named, *said]


def _kind(column: Column[Any]) -> Kind:
    for sort, kind in ((JSON, Kind.JSON), (BigInteger, Kind.WHOLE), (Double, Kind.REAL), (UtcTime, Kind.TIME)):
        if isinstance(column.type, sort):
            return kind
    return Kind.TEXT


def file_rows(table: type[Base]) -> Select[Any]:
    """What goes into the file of a table; rows of one measurement stay together."""
    source = table_of(table)
    columns: list[Any] = [source.c[column.name] for column in own_columns(table)]
    if table in LABELS:
        columns.append(source.c.digest.label(LABELS[table]))
    statement = select(*columns)
    for other in REFERENCES.get(table, ()):
        target, key = table_of(other), source.c[f"{LABELS[other]}_id"]
        statement = statement.join(target, target.c.id == key).add_columns(target.c.digest.label(LABELS[other]))
    order = [source.c.measurement_id] if "measurement_id" in source.c else []
    return statement.select_from(source).order_by(*order, source.c.id)

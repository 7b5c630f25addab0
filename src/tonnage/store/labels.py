"""Labels in the benchmark database: what was predicted, and beside it what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, RowMapping, delete, func, insert, select

from tonnage.errors import NotFound, UsageError
from tonnage.store.database import Database
from tonnage.store.tables import LabelMeasurements, Labels

_KEPT = timedelta(days=30)
MOST_MEASUREMENTS = 1000  # of one label: each is deployed once, and reports a few times at most


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRow:
    """One answer of the server. `signed` and `choice` are plain JSON."""

    label: str
    server: str
    program: str
    program_digest: str
    gpu: str
    issued_at: datetime
    expires_at: datetime
    step_seconds: float
    signed: Mapping[str, Any]
    choice: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelMeasurement:
    """Indicators of one run with the label. `run` is its state, steps and seconds; None where only a window was seen."""

    measured_at: datetime
    step_seconds: float
    indicators: Mapping[str, Any]
    run: Mapping[str, Any] | None = None


class LabelBook:
    """The labels of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, row: LabelRow) -> None:
        """Labels that were never used go, some time after they have expired."""
        values = {name: getattr(row, name) for name in row.__slots__}
        used = select(LabelMeasurements.label_id)
        with self._database.writing() as connection:
            connection.execute(delete(Labels).where(Labels.expires_at < row.issued_at - _KEPT, Labels.id.not_in(used)))
            connection.execute(insert(Labels).values(values))

    def find(self, label: str) -> LabelRow:
        """Raises `NotFound`."""
        with self._database.reading() as connection:
            row = _row(connection, label)
        return LabelRow(**{name: row[name] for name in LabelRow.__slots__})

    def add_measurement(self, label: str, measured: LabelMeasurement) -> None:
        """Raises `NotFound`, or `UsageError` where there are enough."""
        with self._database.writing() as connection:
            key = _row(connection, label)["id"]
            mine = LabelMeasurements.label_id == key
            count = connection.execute(select(func.count()).select_from(LabelMeasurements).where(mine)).scalar_one()
            if count >= MOST_MEASUREMENTS:
                raise UsageError(f"the label {label} has {count} measurements already, which is enough")
            values = {name: getattr(measured, name) for name in measured.__slots__}
            connection.execute(insert(LabelMeasurements).values(values | {"label_id": key}))

    def measurements(self, label: str) -> tuple[LabelMeasurement, ...]:
        """In the order in which they came."""
        with self._database.reading() as connection:
            key = _row(connection, label)["id"]
            columns = [getattr(LabelMeasurements, name) for name in LabelMeasurement.__slots__]
            statement = select(*columns).where(LabelMeasurements.label_id == key).order_by(LabelMeasurements.id)
            return tuple(LabelMeasurement(**row) for row in connection.execute(statement).mappings())

    def indicators_of(self, program_digest: str) -> dict[str, Mapping[str, Any]]:
        """Of all runs of a program with any label that came to a good end: the last on each GPU."""
        of_program = LabelMeasurements.label_id.in_(select(Labels.id).where(Labels.program_digest == program_digest))
        columns = (LabelMeasurements.indicators, LabelMeasurements.run)
        statement = select(*columns).where(of_program).order_by(LabelMeasurements.id)
        with self._database.reading() as connection:
            found: list[Any] = [indicators for indicators, run in connection.execute(statement) if _is_good(run)]
        return {str(indicators["gpu"]): indicators for indicators in found}


def _is_good(run: Any) -> bool:
    """Nothing is known of a run of which only a window was seen."""
    return run is None or run["state"] in ("running", "succeeded")


def _row(connection: Connection, label: str) -> RowMapping:
    table = Labels.__table__
    row = connection.execute(select(table).where(Labels.label == label)).mappings().first()
    if row is None:
        raise NotFound(f"this server has issued no label {label[:40]}")
    return row

"""Labels and what came of them, on SQLite and PostgreSQL."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tonnage.errors import NotFound
from tonnage.store.database import Database
from tonnage.store.labels import LabelBook, LabelMeasurement, LabelRow

ROW = LabelRow(
    label="0" * 32, server="laboratory", program="train.py", program_digest="sha256:" + "a" * 64, gpu="H200",
    issued_at=datetime(2026, 11, 15, tzinfo=UTC), expires_at=datetime(2026, 11, 16, tzinfo=UTC), step_seconds=0.125,
    signed={"label": {"id": "0" * 32}}, choice={"considered": []},
)  # fmt: skip


def test_a_label_comes_back_as_it_was(database: Database) -> None:
    book = LabelBook(database)
    book.add(ROW)
    book.add(replace(ROW, label="1" * 32, gpu=""))
    assert book.find(ROW.label) == ROW


def test_measurements_come_back_in_order(database: Database) -> None:
    book = LabelBook(database)
    book.add(ROW)
    measured = [
        LabelMeasurement(
            measured_at=datetime(2026, 11, day, tzinfo=UTC), step_seconds=day / 100, indicators={"steps": day}
        )
        for day in (17, 16)
    ]
    for one in measured:
        book.add_measurement(ROW.label, one)
    assert list(book.measurements(ROW.label)) == measured


def test_a_label_that_was_never_issued_is_not_found(database: Database) -> None:
    with pytest.raises(NotFound, match="has issued no label"):
        LabelBook(database).find("f" * 32)
    with pytest.raises(NotFound):
        LabelBook(database).measurements("f" * 32)


def test_labels_that_were_never_used_go_some_time_after_they_have_expired(database: Database) -> None:
    book = LabelBook(database)
    used, unused = replace(ROW, label="1" * 32), replace(ROW, label="2" * 32)
    book.add(used)
    book.add(unused)
    book.add_measurement(used.label, LabelMeasurement(measured_at=ROW.issued_at, step_seconds=1, indicators={}))
    later = {"issued_at": datetime(2027, 1, 1, tzinfo=UTC), "expires_at": datetime(2027, 1, 2, tzinfo=UTC)}
    book.add(replace(ROW, **later))
    assert book.find(used.label) == used
    with pytest.raises(NotFound):
        book.find(unused.label)


def test_the_last_run_on_each_gpu_that_came_to_a_good_end_is_remembered(database: Database) -> None:
    book = LabelBook(database)
    book.add(ROW)
    for seconds, gpu, state in (
        (1, "H200", "succeeded"),
        (2, "H200", "succeeded"),
        (3, "H200", "failed"),
        (4, "L4", None),
    ):
        run = None if state is None else {"state": state, "steps": 1, "seconds": 1.0}
        book.add_measurement(
            ROW.label,
            LabelMeasurement(
                measured_at=ROW.issued_at,
                step_seconds=seconds,
                indicators={"gpu": gpu, "step_seconds": seconds},
                run=run,
            ),
        )
    found = book.indicators_of(ROW.program_digest)
    assert {gpu: one["step_seconds"] for gpu, one in found.items()} == {"H200": 2, "L4": 4}
    assert book.indicators_of("sha256:" + "b" * 64) == {}

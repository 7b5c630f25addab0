"""Rows leave the benchmark database as Parquet and CSV, and come back as they were."""

import csv
import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_examples import (
    CPU,
    H200,
    T4,
    environments,
    host,
    hosts,
    kernel,
    kernels,
    later,
    measurement,
    measurements,
)

from tonnage.errors import InvalidFile, MissingDependency, NotFound, UsageError
from tonnage.program.trace import Operator, TensorSpec
from tonnage.store.database import Database, open_database
from tonnage.store.exchange import export_rows, import_rows
from tonnage.store.rows import Environment, HostRow, KernelRow, Measurement

every_format = pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
Everything = tuple[list[object], list[object], list[object]]


def everything(database: Database) -> Everything:
    return list(database.measurements()), list(database.kernels()), list(database.hosts())


def fill(database: Database) -> None:
    database.add(H200, measurement("a"), [kernel(), kernel(), kernel(position=1)], [host()])
    database.add(H200, measurement("b", message='a "quoted",\r\nlong\nmessage'), [kernel()])
    database.add(CPU, measurement("c", step_seconds=None, utilisation=None, measured_at=later(0.5)))


@pytest.fixture
def filled(database: Database) -> Database:
    fill(database)
    return database


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What a database of CSV files looks like."""
    with open_database(tmp_path / "source.db") as source:
        fill(source)
        export_rows(source, tmp_path / "rows.csv")
    return tmp_path / "rows.csv"


def edit(path: Path, change: Callable[[list[dict[str, str]]], None]) -> None:
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        rows, names = list(reader), reader.fieldnames or []
    change(rows)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)


# -- round trips ----------------------------------------------------------------------------------------------------------


@every_format
def test_an_export_can_be_imported_elsewhere(filled: Database, tmp_path: Path, suffix: str) -> None:
    counts = export_rows(filled, tmp_path / f"rows{suffix}")
    assert counts == filled.counts()
    with open_database(tmp_path / "copy.db") as copy:
        report = import_rows(copy, tmp_path / f"rows{suffix}")
        assert everything(copy) == everything(filled)
    assert {table: tally.added for table, tally in report.tables.items()} == counts
    assert report.refusals == ()


@every_format
def test_importing_twice_adds_nothing(filled: Database, tmp_path: Path, suffix: str) -> None:
    export_rows(filled, tmp_path / f"rows{suffix}")
    before = everything(filled)
    report = import_rows(filled, tmp_path / f"rows{suffix}")
    assert (report.added, report.known) == (0, sum(filled.counts().values()))
    assert everything(filled) == before


sets_of_rows = st.lists(
    st.tuples(environments, measurements, st.lists(kernels, max_size=3), st.lists(hosts, max_size=2)), max_size=3
)


@every_format
@settings(max_examples=20, deadline=None)
@given(additions=sets_of_rows)
def test_a_round_trip_is_exact(
    suffix: str, additions: list[tuple[Environment, Measurement, list[KernelRow], list[HostRow]]]
) -> None:
    with TemporaryDirectory() as name, open_database(Path(name, "a.db")) as source:
        for addition in additions:
            source.add(*addition)
        export_rows(source, Path(name, f"rows{suffix}"))
        with open_database(Path(name, "b.db")) as copy:
            first, second = (import_rows(copy, Path(name, f"rows{suffix}")) for _ in range(2))
            assert everything(copy) == everything(source)
            assert first.added == second.known == sum(source.counts().values())
            assert second.added == len(first.refusals) == len(second.refusals) == 0


def test_an_operator_may_have_a_very_long_description(database: Database, tmp_path: Path) -> None:
    long = Operator("aten::_foreach_add_", tuple(TensorSpec((number,), "float32") for number in range(10_000)), ())
    database.add(H200, measurement(), [kernel(long)])
    export_rows(database, tmp_path / "rows.csv")
    with open_database(tmp_path / "copy.db") as copy:
        import_rows(copy, tmp_path / "rows.csv")
        assert everything(copy) == everything(database)


# -- the files ------------------------------------------------------------------------------------------------------------


def test_files_have_flat_columns_and_plain_numbers(folder: Path) -> None:
    with (folder / "measurements.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["step_seconds_mean"] for row in rows] == ["0.0123", "0.0123", ""]
    assert rows[0]["allocated_bytes"] == str(2**33)
    assert json.loads(rows[0]["structure"]) == {"widths": [128, 64], "dropout": 0.1}
    assert rows[0]["measured_at"] == "2026-11-15T12:30:15.123456+00:00"


def test_a_folder_without_a_suffix_gets_csv(filled: Database, tmp_path: Path) -> None:
    export_rows(filled, tmp_path / "rows")
    assert sorted(path.name for path in (tmp_path / "rows").iterdir()) == [
        "environments.csv", "hosts.csv", "kernels.csv", "measurements.csv", "operators.csv",
    ]  # fmt: skip


def test_an_export_overwrites_nothing(filled: Database, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").mkdir()
    (tmp_path / "rows.csv" / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="exists already"):
        export_rows(filled, tmp_path / "rows.csv")


def test_an_unknown_format_is_named(filled: Database, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"rows\.xlsx says no format"):
        export_rows(filled, tmp_path / "rows.xlsx")


def test_an_export_that_fails_leaves_nothing(filled: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    before = sorted(tmp_path.glob("*rows*"))
    with pytest.raises(MissingDependency, match="pyarrow"):
        export_rows(filled, tmp_path / "rows.parquet")
    assert sorted(tmp_path.glob("*rows*")) == before
    with pytest.raises(UsageError, match="cannot be written"):
        export_rows(filled, tmp_path / "missing" / "rows.csv")


# -- imports --------------------------------------------------------------------------------------------------------------


def test_wrong_rows_are_refused_with_line_and_reason_and_good_ones_kept(database: Database, folder: Path) -> None:
    def spoil(rows: list[dict[str, str]]) -> None:
        rows[0]["step_seconds_mean"] = "nan"
        rows[1]["batch"] = "many"

    edit(folder / "measurements.csv", spoil)
    report = import_rows(database, folder)
    assert [str(refusal) for refusal in report.refusals[:2]] == [
        "measurements.csv, line 2: step_seconds_mean is nan: it must be a finite number",
        "measurements.csv, line 3: batch is 'many': it must be a whole number",
    ]
    # The line after the message of three lines, and the kernels of the refused measurements.
    assert "is neither in these files nor in the database" in report.refusals[2].reason
    assert report.tables["kernels"].refused == 4
    assert [row.key for _, row in database.measurements()] == ["c"]


@pytest.mark.parametrize(
    ("column", "cell", "sentence"),
    [
        ("reserved_bytes", "-1", "reserved_bytes is -1: it must not be negative"),
        ("utilisation", "1.5", "utilisation is 1.5: it must be a share from 0 to 1"),
        ("step_seconds_mean", "", "step_seconds has a mean of None and a deviation of 0.0001: give both or none"),
        ("status", "fine", "status is 'fine': it must be one of ok, out_of_memory, failed, interrupted"),
        ("structure", "[1]", "structure: [1] does not map names to attributes"),
        ("structure", "{", "structure is '{': it must be JSON"),
        ("structure", '{"a":{"b":1}}', "structure: {'b': 1} is no attribute"),
        ("structure", "[" * 100_000, "it must be JSON"),
        ("input_shape", "[1.5]", "input_shape: [1.5] is no list of whole numbers"),
        ("measured_at", "yesterday", "measured_at is 'yesterday': it must be a time such as"),
        ("measured_at", "2026-11-15T12:00:00", "it must have a time zone"),
        ("batch", "", "batch is None: it must be a whole number"),
        ("environment", "unheard", "environment 'unheard' is neither in these files nor in the database"),
    ],
)
def test_a_refused_row_names_column_and_value(
    tmp_path: Path, folder: Path, column: str, cell: str, sentence: str
) -> None:
    edit(folder / "measurements.csv", lambda rows: rows[0].update({column: cell}))
    with open_database(tmp_path / "copy.db") as database:
        report = import_rows(database, folder)
    assert sentence in str(report.refusals[0])
    assert report.tables["measurements"].refused == 1


@pytest.mark.parametrize("spec", ["[]", '{"inputs":[],"outputs":[null],"attributes":{}}', '{"inputs":[[1]]}', "null"])
def test_a_refused_operator_takes_its_kernels_along(tmp_path: Path, folder: Path, spec: str) -> None:
    edit(folder / "operators.csv", lambda rows: rows[0].update(spec=spec))
    with open_database(tmp_path / "copy.db") as database:
        report = import_rows(database, folder)
    assert report.tables["operators"].refused == 1
    assert report.tables["kernels"].refused == 4


def test_a_line_with_too_few_cells_is_refused(database: Database, folder: Path) -> None:
    with (folder / "environments.csv").open("a", encoding="utf-8") as file:
        file.write("one,two\n\n")
    report = import_rows(database, folder)
    assert [str(refusal) for refusal in report.refusals] == [
        "environments.csv, line 4: it has 2 cells, the line of names has 14"
    ]


def test_refused_rows_can_be_corrected_and_imported_again(database: Database, folder: Path) -> None:
    edit(folder / "measurements.csv", lambda rows: rows[0].update(batch="-1"))
    import_rows(database, folder)
    edit(folder / "measurements.csv", lambda rows: rows[0].update(batch="32"))
    report = import_rows(database, folder)
    assert report.tables["measurements"].added == 1
    assert report.tables["kernels"].added == 3
    assert database.counts()["kernels"] == 4


def test_two_rows_with_one_label_are_noticed(database: Database, folder: Path) -> None:
    edit(folder / "environments.csv", lambda rows: rows[1].update(environment=rows[0]["environment"]))
    report = import_rows(database, folder)
    assert "was given before, with other values" in report.refusals[0].reason


def test_a_gpu_that_the_catalogue_does_not_know_is_kept_and_reported(database: Database, folder: Path) -> None:
    edit(folder / "environments.csv", lambda rows: rows[0].update(gpu="Warp 9"))
    report = import_rows(database, folder)
    assert report.unknown_gpus == ("Warp 9",)
    assert len(list(database.measurements(gpu="Warp 9"))) == 2


def test_one_file_alone_can_be_imported(database: Database, folder: Path) -> None:
    report = import_rows(database, folder / "measurements.csv")
    assert report.tables["measurements"].refused == 3
    import_rows(database, folder / "environments.csv")
    assert import_rows(database, folder / "measurements.csv").tables["measurements"].added == 3
    import_rows(database, folder / "operators.csv")
    assert import_rows(database, folder / "kernels.csv").tables["kernels"].added == 4


def test_columns_that_may_be_empty_may_be_missing(database: Database, tmp_path: Path) -> None:
    (tmp_path / "environments.csv").write_text(
        "\ufeffdevice,gpu,driver,cuda,cudnn,torch,python,platform,cpu,tonnage\ncuda,T4,580.95.05,,,,,,,\n"
    )
    assert import_rows(database, tmp_path / "environments.csv").added == 1
    database.add(T4, measurement())
    assert database.counts()["environments"] == 1


# -- files that cannot be read --------------------------------------------------------------------------------------------


def test_nothing_is_imported_if_a_file_cannot_be_read(database: Database, folder: Path) -> None:
    (folder / "hosts.csv").write_bytes(b"measurement,operator,phase,calls,seconds_mean,seconds_deviation\n\xff\xfe")
    with pytest.raises(InvalidFile, match=r"hosts\.csv cannot be read"):
        import_rows(database, folder)
    assert set(database.counts().values()) == {0}


def test_a_truncated_archive_cannot_be_read(filled: Database, tmp_path: Path) -> None:
    export_rows(filled, tmp_path / "rows.csv.gz")
    path = tmp_path / "rows.csv.gz" / "kernels.csv.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with open_database(tmp_path / "copy.db") as copy:
        with pytest.raises(InvalidFile, match="cannot be read"):
            import_rows(copy, tmp_path / "rows.csv.gz")
        assert set(copy.counts().values()) == {0}


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("environments.csv", b"", "is empty"),
        ("environments.parquet", b"PAR1 not really", "cannot be read"),
        ("environments.csv.gz", b"no gzip", "cannot be read"),
        ("environments.csv.gz", gzip.compress(b'device,"gpu', mtime=0), "cannot be read"),
        ("operators.csv", b"operator,name,spec,sepc\n", "has a column 'sepc' that operators do not have"),
        ("operators.csv", b"operator,name\n", "has no column 'spec', which operators need"),
        ("operators.csv", b"operator,name,spec,name\n", "has the column 'name' twice"),
    ],
)
def test_an_unreadable_file_is_named(
    database: Database, tmp_path: Path, name: str, content: bytes, sentence: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidFile, match=sentence) as caught:
        import_rows(database, tmp_path / name)
    assert name in caught.value.message


def test_missing_and_foreign_files_are_named(database: Database, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        import_rows(database, tmp_path / "missing")
    (tmp_path / "else").mkdir()
    with pytest.raises(UsageError, match="has none of the files of an export"):
        import_rows(database, tmp_path / "else")
    (tmp_path / "rows.csv").write_text("a,b\n")
    with pytest.raises(UsageError, match="is not called like a file of an export"):
        import_rows(database, tmp_path / "rows.csv")


def test_parquet_counts_rows(database: Database, tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    columns = {"name": ["aten::mm", None], "spec": ['{"inputs":[],"outputs":[],"attributes":{}}', "{}"]}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "operators.parquet")
    report = import_rows(database, tmp_path / "operators.parquet")
    assert [str(refusal) for refusal in report.refusals] == ["operators.parquet, row 2: name is None: it must be text"]

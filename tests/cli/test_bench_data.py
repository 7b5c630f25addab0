"""`tonnage bench show`, `export` and `import`, called as commands."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tonnage.cli.main import app
from tonnage.errors import InvalidFile, NotFound, UsageError
from tonnage.program.trace import Operator
from tonnage.store.database import open_database
from tonnage.store.rows import Environment, KernelRow, Measurement, Spread, Status


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two measurements, in the database that the environment variable names."""
    path = tmp_path / "benchmark.db"
    monkeypatch.setenv("TONNAGE_DATABASE", str(path))
    kernel = KernelRow(
        operator=Operator("aten::mm", (), ()), phase="forward", position=0, kernel="k", calls=1, seconds=Spread(1, 0)
    )
    with open_database() as opened:
        opened.add(Environment(device="cuda", gpu="H200"), row("a"), [kernel])
        opened.add(Environment(device="cpu", gpu=""), row("b", Status.FAILED))
    return path


def row(key: str, status: Status = Status.OK) -> Measurement:
    moment = datetime(2026, 11, 15, tzinfo=UTC)
    return Measurement(
        key=key, campaign="c", family="mlp", structure={}, batch=1, input_shape=(), measured_at=moment, status=status
    )  # fmt: skip


def output(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["bench", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def error(*arguments: str) -> BaseException | None:
    return CliRunner().invoke(app, ["bench", *arguments]).exception


def test_what_was_measured_is_counted(database: Path) -> None:
    shown = output("show")
    assert f"{database}: 2 measurements" in shown
    assert [line.split() for line in shown.splitlines() if "mlp" in line] == [
        ["CPU", "mlp", "failed", "1", "0", "2026-11-15", "2026-11-15"],
        ["H200", "mlp", "ok", "1", "1", "2026-11-15", "2026-11-15"],
    ]


@pytest.mark.parametrize("gpu", ["H200", "nvidia-h200", "cpu", "Warp 9"])
def test_a_gpu_may_be_spelt_as_everywhere(gpu: str) -> None:
    groups = json.loads(output("show", "--gpu", gpu, "--json"))["groups"]
    expected = {"H200": ["H200"], "nvidia-h200": ["H200"], "cpu": [""], "Warp 9": []}[gpu]
    assert [group["gpu"] for group in groups] == expected


def test_families_can_be_chosen() -> None:
    assert json.loads(output("show", "--family", "resnet", "--json"))["groups"] == []


def test_json_says_what_the_table_says(database: Path) -> None:
    document = json.loads(output("show", "--json"))
    assert document["database"] == str(database)
    assert document["rows"] == {"environments": 2, "operators": 1, "measurements": 2, "kernels": 1, "hosts": 0}
    assert document["groups"][1] == {
        "gpu": "H200", "family": "mlp", "status": "ok", "measurements": 1, "kernels": 1, "hosts": 0,
        "first_at": "2026-11-15T00:00:00+00:00", "last_at": "2026-11-15T00:00:00+00:00",
    }  # fmt: skip


def test_rows_go_out_and_in_again(tmp_path: Path) -> None:
    folder, copy = str(tmp_path / "rows.parquet"), str(tmp_path / "copy.db")
    assert "2 measurements, 1 kernels" in output("export", folder)
    assert "measurements: 2 added, 0 known already, 0 refused" in output("import", folder, "--database", copy)
    report = json.loads(output("import", folder, "--database", copy, "--json"))
    assert report["tables"]["measurements"] == {"added": 0, "known": 2, "refused": 0}
    assert output("show", "--database", copy).splitlines()[1:] == output("show").splitlines()[1:]


def test_refused_rows_are_listed_and_end_in_an_error(tmp_path: Path) -> None:
    path = tmp_path / "operators.csv"
    path.write_text("name,spec\n" + "aten::mm,{}\n" * 30)
    result = CliRunner().invoke(app, ["bench", "import", str(path)])
    assert isinstance(result.exception, InvalidFile)
    assert "refused: operators.csv, line 2: spec: {} has not inputs" in result.stderr
    assert "... and 10 more" in result.stderr
    assert "30 rows were refused" in result.exception.message


def test_errors_are_for_main_to_print(tmp_path: Path) -> None:
    assert isinstance(error("show", "--database", str(tmp_path / "missing.db")), NotFound)
    assert isinstance(error("export", str(tmp_path / "rows.xlsx")), UsageError)
    assert isinstance(error("import", str(tmp_path / "missing")), NotFound)


def test_a_misspelt_folder_makes_no_database(tmp_path: Path) -> None:
    assert isinstance(error("import", str(tmp_path / "missing"), "--database", str(tmp_path / "new.db")), NotFound)
    assert not (tmp_path / "new.db").exists()


def test_an_unreachable_server_ends_with_code_5_and_no_password() -> None:
    command = [sys.executable, "-m", "tonnage.cli.main", "bench", "show", "--database"]
    result = subprocess.run(
        [*command, "postgresql://me:hunter2@127.0.0.1:1/x"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 5
    assert result.stderr.startswith("error: the PostgreSQL database x at 127.0.0.1:1 does not answer")
    assert "hunter2" not in result.stdout + result.stderr

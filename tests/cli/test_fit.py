"""`tonnage fit`, on a small database whose kernels obey a known law."""

import json
from pathlib import Path
from typing import Any

import pytest
from observed import TRUTH, make_database
from typer.testing import CliRunner

from tonnage.api import estimate
from tonnage.benchmark.time_models import read_model, write_model
from tonnage.cli.main import app
from tonnage.errors import InvalidFile, NotFound, TonnageError, UsageError
from tonnage.estimate.host_time import HostModel
from tonnage.estimate.time_model import TimeModel
from tonnage.store.database import open_database
from tonnage.store.rows import Environment

BAD = TimeModel(host=HostModel(operator=3e-3, backward_start=1.0))


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_database(tmp_path_factory.mktemp("fit") / "benchmark.db", 60)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where estimates look for a model; there is none yet."""
    path = tmp_path / "own.json.gz"
    monkeypatch.setenv("TONNAGE_TIME_MODEL", str(path))
    return path


def fit(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, ["fit", *map(str, arguments)])


def error(*arguments: str | Path) -> TonnageError:
    raised = fit(*arguments).exception
    assert isinstance(raised, TonnageError), raised
    return raised


@pytest.mark.slow
def test_a_better_model_takes_the_place_of_a_worse_one(database: Path, own: Path) -> None:
    write_model(BAD, own)
    answer = json.loads(fit("--database", database, "--json").stdout)
    assert (answer["gpus"], answer["measurements"], answer["held_back"]) == (["H200"], 60, 12)
    assert answer["is_better"] is True
    assert answer["new"]["step_seconds"] < 0.1 < answer["old"]["step_seconds"]
    assert answer["written"] == str(own)
    assert read_model(own).fitted["gpus"] == ["H200"]


@pytest.mark.slow
def test_a_model_that_is_not_better_is_not_used(database: Path, own: Path) -> None:
    write_model(TRUTH, own)
    before = own.read_bytes()
    result = fit("--database", database)
    assert result.exit_code == 0
    assert "60 measurements on H200; 12 of them were held back" in result.stdout
    assert "not better than the model in use, which stays (--force overrides)" in result.stdout
    assert own.read_bytes() == before


@pytest.mark.slow
def test_a_model_may_be_written_elsewhere(database: Path, own: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json.gz"
    assert f"written: {other}" in fit("--database", database, "--output", other).stdout
    assert read_model(other).fitted["kernels"] > 200
    assert not own.exists()


@pytest.mark.slow
def test_a_damaged_model_is_replaced(database: Path, own: Path) -> None:
    own.write_text("these are words")
    with pytest.raises(InvalidFile):
        estimate("x.trace")
    assert f"written: {own}" in fit("--database", database, "--force").stdout
    assert read_model(own).fitted["gpus"] == ["H200"]


# -- databases that do not do ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("own")
def test_no_database_is_not_found(tmp_path: Path) -> None:
    raised = error("--database", tmp_path / "none.db")
    assert isinstance(raised, NotFound)
    assert "tonnage bench run" in raised.hint
    assert not (tmp_path / "none.db").exists()


@pytest.mark.usefixtures("own")
def test_a_file_that_is_no_database_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "words.db"
    path.write_text("these are words, and many of them" * 100)
    assert isinstance(error("--database", path), UsageError)
    assert path.read_text().startswith("these are words")


@pytest.mark.usefixtures("own")
def test_half_a_database_is_refused(database: Path, tmp_path: Path) -> None:
    path = tmp_path / "half.db"
    path.write_bytes(database.read_bytes()[: database.stat().st_size // 2])
    assert isinstance(error("--database", path), UsageError)


@pytest.mark.usefixtures("own")
def test_the_database_may_be_named_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TONNAGE_DATABASE", str(tmp_path / "named.db"))
    assert "named.db" in error().message


@pytest.mark.usefixtures("own")
def test_an_empty_database_says_what_is_needed(tmp_path: Path) -> None:
    with open_database(tmp_path / "new.db"):
        pass
    raised = error("--database", tmp_path / "new.db")
    assert "holds 0 measurements with kernels of GPUs in the catalogue; a fit needs at least 20" in raised.message
    assert (raised.exit_code, raised.hint) == (1, "measure more: tonnage bench run")


@pytest.mark.usefixtures("own")
def test_few_rows_are_too_few(tmp_path: Path) -> None:
    assert "a fit needs at least 20" in error("--database", make_database(tmp_path / "few.db", 5)).message


@pytest.mark.usefixtures("own")
def test_few_kernels_are_too_few(tmp_path: Path) -> None:
    raised = error("--database", make_database(tmp_path / "few.db", 25))
    assert "a kernel model needs at least 200" in raised.message


@pytest.mark.usefixtures("own")
def test_rows_of_a_gpu_that_nobody_knows_do_not_count(tmp_path: Path) -> None:
    path = make_database(tmp_path / "strange.db", 25, Environment(device="cuda", gpu="Warp 9"))
    assert "holds 0 measurements with kernels of GPUs in the catalogue" in error("--database", path).message

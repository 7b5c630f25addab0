"""`tonnage fit`, on a small database whose kernels obey a known law."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from observed import TRUTH, make_database
from typer.testing import CliRunner

from tonnage.api import estimate
from tonnage.benchmark.fit_kernels import KindError
from tonnage.benchmark.scores import Score
from tonnage.benchmark.time_models import read_model, write_model
from tonnage.benchmark.verdict import Judgement, Verdict
from tonnage.cli.fit import _print as print_verdict
from tonnage.cli.main import app
from tonnage.errors import InvalidFile, NotFound, TonnageError, UsageError
from tonnage.estimate.host_time import HostModel
from tonnage.estimate.kernels.constants import Constants
from tonnage.estimate.kernels.model import KernelModel
from tonnage.estimate.time_model import TimeModel

BAD = TimeModel(
    host=HostModel(operator=3e-3, backward_start=1.0),
    kernels=KernelModel(constants=Constants(names={"aten::mm": 1.0, "aten::relu": 1.0})),  # e times too long
)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_database(tmp_path_factory.mktemp("fit") / "benchmark.db", 84, families=("mlp", "rnn"))


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
    assert (answer["gpus"], answer["measurements"], answer["held_back"]) == (["H200"], 84, ["mlp", "rnn"])
    assert answer["is_better"] is True
    assert (answer["judgement"]["steps"], answer["judgement"]["seen"]) == (84, 0)
    assert answer["judgement"]["new"]["step_seconds"] < 0.1 < answer["judgement"]["old"]["step_seconds"]
    assert answer["written"] == str(own)
    assert read_model(own).fitted["gpus"] == ["H200"]


@pytest.mark.slow
def test_a_model_that_is_not_better_is_not_used(database: Path, own: Path) -> None:
    write_model(TRUTH, own)
    before = own.read_bytes()
    result = fit("--database", database)
    assert result.exit_code == 0
    assert result.stdout.startswith("84 measurements on H200, 84 of them timed steps\n")
    assert "error, families left out" in result.stdout
    assert "judged on 84 steps that neither model was fitted to\nthe new model is not better" in result.stdout
    assert result.stdout.endswith("the model in use stays (--force overrides)\n")
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
def test_few_rows_are_too_few(tmp_path: Path) -> None:
    raised = error("--database", make_database(tmp_path / "few.db", 5))
    assert "few.db holds 5 measurements with kernels of known GPUs; a fit needs at least 20" in raised.message
    assert (raised.exit_code, raised.hint) == (1, "measure more: tonnage bench run")


@pytest.mark.usefixtures("own")
def test_few_kernels_are_too_few(tmp_path: Path) -> None:
    raised = error("--database", make_database(tmp_path / "few.db", 25))
    assert raised.message.startswith("125 kernels were measured, 100 without every fifth measurement")
    assert "at least 200" in raised.message


def test_a_place_that_cannot_be_written_is_refused_at_once(database: Path, own: Path, tmp_path: Path) -> None:
    raised = error("--database", database, "--output", tmp_path)
    assert isinstance(raised, UsageError)
    assert f"the time model cannot be written to {tmp_path}: it is a folder" in raised.message
    assert not own.exists()


# -- what it prints -------------------------------------------------------------------------------------------------------


def verdict(**changes: Any) -> Verdict:
    score = {"model": "new", "rows": 40, "median": 0.071, "ninetieth": 0.2, "covered": 0.9}
    found = Verdict(
        gpus=("L4",),
        shipped_gpus=("H200",),
        measurements=1200,
        steps=40,
        held_back=("mlp", "rnn"),
        scores=tuple(
            Score(family=family, quantity=quantity, **score)
            for family in ("all", "mlp", "rnn")
            for quantity in ("step_seconds", "energy_joules_step")
        ),
        kinds=(),
        gpus_left_out={"L4": KindError(kind="all", rows=9000, median=0.12, time_weighted=0.34, bias=0.1)},
        judgement=Judgement(steps=40, seen=0, old={"step_seconds": 0.2}, new={"step_seconds": 0.1}),
    )
    return replace(found, **changes)


def printed(found: Verdict, path: Path | None, capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    print_verdict(found, path)
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_all_errors_are_in_tables(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(verdict(), Path("own.json.gz"), capsys)
    assert " ".join(lines[0]).endswith("on L4, 40 of them timed steps; kernels of H200 come with the package")
    assert ["step", "40", "7.1%", "20.0%", "90%"] in lines
    assert ["energy", "40", "7.1%", "20.0%", "90%"] in lines
    assert ["rnn", "40", "7.1%", "20.0%", "90%"] in lines
    assert ["L4", "9,000", "12.0%", "34.0%"] in lines
    assert ["step", "20.0%", "10.0%"] in lines
    assert lines[-1] == ["written:", "own.json.gz"]


def test_without_families_and_other_gpus_there_are_no_such_tables(capsys: pytest.CaptureFixture[str]) -> None:
    found = verdict(held_back=("every fifth measurement",), gpus_left_out={}, shipped_gpus=())
    shown = "\n".join(" ".join(line) for line in printed(found, None, capsys))
    assert "error, every fifth row left out steps" in shown
    assert "step of a family left out" not in shown
    assert "kernels of a GPU left out" not in shown
    assert shown.endswith("the model in use stays (--force overrides)")

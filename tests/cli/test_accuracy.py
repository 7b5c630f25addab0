"""`tonnage accuracy`, on a small database whose steps obey a known law."""

import json
from pathlib import Path
from typing import Any

import pytest
from observed import make_database
from typer.testing import CliRunner

from tonnage.benchmark.scores import Score
from tonnage.cli.accuracy import _print as print_scores
from tonnage.cli.main import app
from tonnage.errors import NotFound, TonnageError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_database(tmp_path_factory.mktemp("accuracy") / "benchmark.db", 60)


def accuracy(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, ["accuracy", *map(str, arguments)])


@pytest.fixture(scope="module")
def scores(database: Path) -> list[dict[str, Any]]:
    scores: list[dict[str, Any]] = json.loads(accuracy("--database", database, "--json").stdout)
    return scores


def test_all_models_are_judged_on_the_same_rows(scores: list[dict[str, Any]]) -> None:
    steps = [score for score in scores if (score["family"], score["quantity"]) == ("all", "step_seconds")]
    assert [score["model"] for score in steps] == [
        "kernel model", "cluster regression", "cluster regression, least resources",
    ]  # fmt: skip
    assert {score["rows"] for score in steps} == {60}


def test_scores_are_shares(scores: list[dict[str, Any]]) -> None:
    for score in scores:
        assert 0 <= score["median"] <= score["ninetieth"]
        assert 0 <= score["covered"] <= 1


def test_the_kernel_model_finds_the_law_again(scores: list[dict[str, Any]]) -> None:
    step = next(
        s for s in scores if (s["model"], s["family"], s["quantity"]) == ("kernel model", "all", "step_seconds")
    )
    assert step["median"] < 0.1


def test_the_table_has_a_row_for_every_quantity(
    scores: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    print_scores([Score(**score) for score in scores])
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("step seconds", "power watts", "kernel model", "cluster regression", "mlp"))


def test_few_steps_are_too_few(tmp_path: Path) -> None:
    raised = accuracy("--database", make_database(tmp_path / "few.db", 8)).exception
    assert isinstance(raised, TonnageError)
    assert "holds 8 measured steps of sample workloads; a comparison needs 40" in raised.message
    assert raised.hint == "measure more: tonnage bench run"


def test_no_database_is_not_found(tmp_path: Path) -> None:
    assert isinstance(accuracy("--database", tmp_path / "none.db").exception, NotFound)

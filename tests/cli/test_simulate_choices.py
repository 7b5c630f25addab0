"""Choices of `tonnage simulate` that exclude each other."""

from pathlib import Path

from typer.testing import CliRunner

from tonnage.cli.main import app
from tonnage.errors import UsageError


def test_a_curve_of_one_policy_is_not_a_comparison_of_all(tmp_path: Path) -> None:
    files = ["--jobs", str(tmp_path / "jobs.trace"), "--throughputs", str(tmp_path / "speeds.json")]
    done = CliRunner().invoke(app, ["simulate", *files, "--gpus", "v100:1", "--curve", "--compare"])
    assert isinstance(done.exception, UsageError)
    assert done.exception.message == "--curve is of one policy, --compare of all"

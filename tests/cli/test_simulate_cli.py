"""`tonnage simulate`, called as a command, on a small trace and, where it is there, on the published one."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tonnage.cli.main import app
from tonnage.cli.simulate import parse_gpus
from tonnage.errors import DoesNotFit, NotFound, TonnageError, UsageError

DATA = Path(__file__).parents[3] / "shared" / "data" / "jobs"
SPEEDS = {
    kind: {
        "('a', 1)": {"null": 4.0 * factor, "('b', 1)": [3.0 * factor, 1.5 * factor]},
        "('b', 1)": {"null": 2.0 * factor, "('a', 1)": [1.5 * factor, 3.0 * factor]},
        "('a', 4)": {"null": 12.0 * factor},
    }
    for kind, factor in (("v100", 1.0), ("k80", 0.25))
}


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "speeds.json").write_text(json.dumps(SPEEDS))
    jobs = [("a", 1, 4000), ("b", 1, 9000), ("a", 4, 20000), ("b", 1, 300), ("a", 1, 800)]
    lines = [f"{n}\tc\td\t-n\t0\t{steps}\t{gpus}\t1\t-1\t{60 * i}\n" for i, (n, gpus, steps) in enumerate(jobs)]
    (tmp_path / "jobs.trace").write_text("".join(lines))
    return ["--jobs", str(tmp_path / "jobs.trace"), "--throughputs", str(tmp_path / "speeds.json")]


def simulate(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["simulate", *arguments])


def document(*arguments: str) -> dict[str, Any]:
    result = simulate(*arguments, "--json")
    assert result.exit_code == 0, result.exception
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def error(*arguments: str) -> TonnageError:
    raised = simulate(*arguments).exception
    assert isinstance(raised, TonnageError)
    return raised


def test_json_has_every_figure(files: list[str]) -> None:
    found = document(*files, "--gpus", "v100:4,k80:4", "--policy", "completion")
    assert found["jobs"] == 5
    assert found["makespan_seconds"] >= found["makespan_bound_seconds"] * (1 - 1e-6) > 0
    assert 0 < found["median_completion_seconds"] <= found["p99_completion_seconds"]
    assert set(found["utilisation"]) == {"v100", "k80"}
    assert {"mean_completion_seconds", "preemptions", "solver_cpu_seconds", "decisions", "mean_slowdown"} <= set(found)


@pytest.mark.parametrize("policy", ["completion", "makespan", "fairness", "blind", "fifo"])
def test_every_policy_finishes_all_jobs_on_one_type(files: list[str], policy: str) -> None:
    found = document(*files, "--gpus", "k80:4", "--policy", policy, "--restart-seconds", "60")
    assert found["policy"] == policy
    assert found["utilisation"]["k80"] <= 1 + 1e-9


def test_a_restart_makes_nobody_faster_on_one_gpu_type_without_packing(files: list[str]) -> None:
    options = (*files, "--gpus", "v100:4", "--no-packing")
    free, costly = document(*options), document(*options, "--restart-seconds", "600")
    assert costly["mean_completion_seconds"] >= free["mean_completion_seconds"] * (1 - 1e-9)


def test_the_text_tells_the_mean(files: list[str]) -> None:
    result = simulate(*files, "--gpus", "v100:4")
    assert "completion" in result.stdout
    assert "mean" in result.stdout


def test_all_policies_stand_beside_each_other(files: list[str]) -> None:
    assert [each["policy"] for each in document(*files, "--gpus", "v100:4", "--compare")["policies"]] == [
        "completion", "makespan", "fairness", "blind", "fifo",
    ]  # fmt: skip
    assert "fairness" in simulate(*files, "--gpus", "v100:4", "--compare").stdout


def test_the_curve_has_a_point_for_each_tail(files: list[str]) -> None:
    points = document(*files, "--gpus", "v100:4", "--curve")["curve"]
    assert [point["tail"] for point in points] == [1.0, 1.05, 1.1, 1.2, 1.35, None]
    assert simulate(*files, "--gpus", "v100:4", "--curve").stdout.count("\n") == 7


@pytest.mark.parametrize("gpus", ["v100", "v100:x", "v100:-1", "", "v100:1,v100:2", "v100:99999999"])
def test_gpus_that_are_no_types_and_numbers_are_refused(gpus: str) -> None:
    with pytest.raises(UsageError, match="--gpus"):
        parse_gpus(gpus)


def test_no_gpus_at_all_is_a_wrong_request(files: list[str]) -> None:
    assert isinstance(error(*files, "--gpus", "v100:0"), UsageError)


def test_a_type_without_speeds_is_not_found_and_the_nearest_is_named(files: list[str]) -> None:
    raised = error(*files, "--gpus", "v10:4")
    assert isinstance(raised, NotFound)
    assert "v100" in raised.hint


def test_a_job_that_runs_nowhere_is_named(files: list[str]) -> None:
    raised = error(*files, "--gpus", "v100:2,k80:3")
    assert isinstance(raised, DoesNotFit)
    assert raised.message == "a on 4 GPUs runs on none of v100, k80"


@pytest.mark.parametrize(
    "option",
    [
        ("--policy", "complation"), ("--durations", "guessed"), ("--tail", "0.5"), ("--tail", "nan"),
        ("--restart-seconds", "-1"), ("--restart-seconds", "nan"), ("--error", "-0.1"), ("--seed", "-1"),
    ],
)  # fmt: skip
def test_an_impossible_option_is_a_wrong_request(files: list[str], option: tuple[str, str]) -> None:
    assert isinstance(error(*files, "--gpus", "v100:4", *option), UsageError)


def test_a_missing_trace_ends_with_code_4(files: list[str]) -> None:
    command = [sys.executable, "-m", "tonnage", "simulate", "--jobs", "none.trace", *files[2:], "--gpus", "v100:4"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (4, "error: no such file: none.trace\n")


@pytest.mark.skipif(not DATA.exists(), reason="the published trace is not there: ../shared/data/jobs")
def test_the_published_trace_keeps_the_bars() -> None:
    files = (
        "--jobs",
        str(DATA / "batch_100_jobs.trace"),
        "--throughputs",
        str(DATA / "throughputs_k80_p100_v100.json.gz"),
    )
    options = (*files, "--gpus", "v100:8,p100:16,k80:24")
    completion, makespan = document(*options), document(*options, "--policy", "makespan")
    assert completion["mean_completion_seconds"] <= 7.0 * 3600
    assert completion["p99_completion_seconds"] <= 19.5 * 3600
    assert makespan["makespan_seconds"] <= 1.005 * makespan["makespan_bound_seconds"]

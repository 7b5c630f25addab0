"""`tonnage bench run`, as people run it: to the end, interrupted, killed, with bad input."""

import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tonnage.benchmark.progress import Progress
from tonnage.benchmark.workloads import make_point
from tonnage.cli.bench_progress import Lines, format_duration, watching
from tonnage.store.database import open_database
from tonnage.store.rows import Status

TINY = """name: tiny
steps: 2
repetitions: 1
workloads:
  - {family: mlp, sample: grid, vary: {batch: [1, 2, 3, 4]}, fix: {width: 8, depth: 1, inputs: 8}}
layers: {count: 4, elements: 4096, kinds: [unary, linear]}
"""
LONG = TINY.replace("steps: 2", "steps: 200").replace("[1, 2, 3, 4]", str(list(range(1, 31))))
ALL = 30 + 4  # points and layers of the long one


@pytest.fixture(autouse=True)
def campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TONNAGE_DATABASE", str(tmp_path / "benchmark.db"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY)
    return path


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "tonnage.cli.main", "bench", "run", *map(str, arguments)]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, check=False, timeout=120)


def document(*arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*arguments, "--json").stdout)
    return found


def measured(folder: Path) -> int:
    path = folder / "benchmark.db"
    if not path.exists():
        return 0
    with open_database(path) as database:
        return database.counts()["measurements"]


# -- to the end -----------------------------------------------------------------------------------------------------------


def test_a_campaign_is_measured_and_then_passed_over(tmp_path: Path, campaign: Path) -> None:
    first, second = run(campaign, "--device", "cpu"), document(campaign, "--device", "cpu")
    assert first.returncode == 0
    (line,) = [line.split() for line in first.stdout.splitlines() if line.strip().startswith("8 ")]
    assert line[:5] == ["8", "0", "0", "0", "0"]
    assert f"database: {tmp_path / 'benchmark.db'}" in first.stdout
    assert first.stdout.rstrip().endswith("next: tonnage fit")
    assert (second["ok"], second["skipped"], second["left"], second["ending"]) == (0, 8, 0, "complete")
    assert second["environment"]["device"] == "cpu"


def test_without_time_a_note_says_how_many_are_left(campaign: Path) -> None:
    result = run(campaign, "--device", "cpu", "--budget", "0.000000001s")
    assert result.returncode == 0
    assert result.stderr == "note: time is up, 8 are left; the same command measures them\n"


def test_a_dry_run_lists_everything_and_measures_nothing(tmp_path: Path, campaign: Path) -> None:
    result = run(campaign, "--dry-run")
    assert len(result.stdout.splitlines()) == 8
    assert "mlp training, batch 3, float32, sgd, contiguous, depth 1, width 8" in result.stdout
    assert result.stderr == "tiny: 4 points and 4 layers; nothing was measured\n"
    assert len(document(campaign, "--dry-run")["jobs"]) == 8
    assert not (tmp_path / "benchmark.db").exists()


# -- interrupted ----------------------------------------------------------------------------------------------------------


def start_long_run(folder: Path) -> subprocess.Popen[str]:
    """A run that would take minutes, once it has measured something."""
    (folder / "long.yaml").write_text(LONG)
    arguments = command(folder / "long.yaml", "--device", "cpu")
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while measured(folder) < 2 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_keeps_what_it_has_and_says_how_to_go_on(tmp_path: Path, number: signal.Signals) -> None:
    with start_long_run(tmp_path) as process:
        (worker,) = psutil.Process(process.pid).children()
        process.send_signal(number)
        _, complaints = process.communicate(timeout=60)
    kept = measured(tmp_path)
    assert process.returncode == 130
    assert f"note: all that was measured is kept, {ALL - kept} are left; the same command goes on\n" in complaints
    assert not worker.is_running()
    with open_database(tmp_path / "benchmark.db") as database:
        assert {row.status for _, row in database.measurements()} == {Status.OK}


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    with start_long_run(tmp_path) as process:
        (worker,) = psutil.Process(process.pid).children()
        process.kill()
        process.communicate(timeout=60)
    worker.wait(timeout=30)  # it must not go on without anybody to report to
    kept = measured(tmp_path)
    (tmp_path / "long.yaml").write_text(LONG.replace("steps: 200", "steps: 1"))
    second = document(tmp_path / "long.yaml", "--device", "cpu")
    assert kept >= 2
    assert (second["skipped"], second["ok"], second["left"]) == (kept, ALL - kept, 0)
    assert measured(tmp_path) == ALL


# -- bad input ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["missing"], 4, "there is no campaign 'missing'"),
        (["missing.yaml"], 4, "no such file: missing.yaml"),
        (["quick", "--budget", "10"], 2, "--budget must be a time with its unit, such as 90 s, 10 min, 1.5 h"),
        (["quick", "--budget", "0 min"], 2, "--budget must be more than 0, not '0 min'"),
        (["quick", "--device", "tpu"], 2, "'tpu' is not one of 'auto', 'cuda', 'cpu'"),
        (["quick", "--gpu-index", "-1"], 2, "Invalid value for '--gpu-index'"),
        (["quick", "--again", "ok"], 2, "'ok' is not one of 'failed'"),
        (["quick", "--database", "postgresql://me:hunter2@127.0.0.1:1/x"], 5, "x at 127.0.0.1:1 does not answer"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], code: int, message: str) -> None:
    result = run(*arguments)
    assert result.returncode == code
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert "hunter2" not in result.stderr
    assert "Traceback" not in result.stderr


def test_a_wrong_campaign_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text(TINY.replace("mlp", "mpl"))
    result = run(tmp_path / "wrong.yaml")
    assert result.returncode == 2
    assert "wrong.yaml:5: workloads[0].family: unknown family 'mpl'; did you mean mlp?" in result.stderr


# -- progress -------------------------------------------------------------------------------------------------------------

POINT = make_point("mlp", {"batch": 8})
HALF = Progress(total=10, done=5, current=POINT, elapsed_seconds=61.0, remaining_seconds=75.4)


def test_lines_come_every_ten_seconds_with_the_time_that_is_left() -> None:
    stream, moments = io.StringIO(), iter([0.0, 4.0, 10.5, 12.0])
    lines = Lines(stream, clock=lambda: next(moments))
    for _ in range(3):
        lines.show(HALF)
    lines.note("a failed")
    assert stream.getvalue().splitlines() == [
        "5/10, 1 min 1 s, about 1 min 15 s left: mlp training, batch 8, float32",
        "note: a failed",
    ]


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "160")
    with watching() as watcher:
        watcher.show(HALF)
        watcher.note("a [b] failed")
    shown = capsys.readouterr().err
    assert "5/10" in shown
    assert "about 1 min 15 s left" in shown
    assert "mlp training, batch 8, float32" in shown
    assert "note: a [b] failed" in shown


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (59.6, "1 min 0 s"), (3725, "1 h 2 min")])
def test_durations_are_for_people(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text

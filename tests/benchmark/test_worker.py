"""The real measuring process, on a CPU: results, too little memory, torch that is not there."""

import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tonnage.benchmark.campaign_file import read_campaign
from tonnage.benchmark.progress import Ending, Progress
from tonnage.benchmark.runner import Settings, run_campaign
from tonnage.errors import MissingDependency, Unreachable
from tonnage.store.database import Database, open_database
from tonnage.store.rows import Status

TINY = """name: tiny
steps: 2
repetitions: 1
workloads:
  - {family: mlp, sample: grid, vary: {batch: [1, 2, 4]}, fix: {width: 8, depth: 1, inputs: 8}}
layers: {count: 4, elements: 4096, kinds: [unary, linear]}
"""
# Run in front of the real process: a network of that batch takes very long.
SLOW = """
import sys, time
from tonnage.benchmark import measure, worker

real = measure.measure_point

def measure_point(point, **arguments):
    time.sleep(600 if point.batch == 2 else 0)
    return real(point, **arguments)

measure.measure_point = measure_point
sys.exit(worker.main(sys.argv[1:]))
"""
# Likewise: a network of that batch is too large for any memory.
TOO_LARGE = """
import sys, torch
from tonnage.benchmark import measure, worker

real = measure.measure_point

def measure_point(point, **arguments):
    if point.batch == 2:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1 GiB. Including: x.")
    return real(point, **arguments)

measure.measure_point = measure_point
sys.exit(worker.main(sys.argv[1:]))
"""
NO_TORCH = """
import sys
from tonnage.benchmark import worker

sys.modules["torch"] = None
sys.exit(worker.main(sys.argv[1:]))
"""


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # small work on a busy machine is quicker so


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    (tmp_path / "tiny.yaml").write_text(TINY)
    with open_database(tmp_path / "benchmark.db") as opened:
        yield opened


def settings(code: str) -> Settings:
    return Settings(device="cpu", command=(sys.executable, "-c", code))


def test_points_and_layers_are_measured(tmp_path: Path, database: Database) -> None:
    report = run_campaign(read_campaign(tmp_path / "tiny.yaml"), database, Settings(device="cpu"))
    measured = [row for _, row in database.measurements(status=Status.OK)]
    assert (report.ok, report.failures, report.ending) == (7, (), Ending.COMPLETE)
    assert {row.mode for row in measured} == {"training", "layer"}
    assert all(row.step_seconds for row in measured if row.mode == "training")
    assert database.counts()["kernels"] == report.kernels > 50
    assert report.environment is not None
    assert report.environment.device == "cpu"


def test_too_little_memory_is_a_result_and_the_run_goes_on(tmp_path: Path, database: Database) -> None:
    report = run_campaign(read_campaign(tmp_path / "tiny.yaml"), database, settings(TOO_LARGE))
    ((_, row),) = database.measurements(status=Status.OUT_OF_MEMORY)
    again = run_campaign(read_campaign(tmp_path / "tiny.yaml"), database, Settings(device="cpu"))
    assert (report.ok, report.out_of_memory, report.failed) == (6, 1, 0)
    assert (row.batch, row.step_seconds) == (2, None)
    assert row.message == "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1 GiB"
    assert again.skipped == 7  # it would not fit the next time either


def test_without_torch_the_command_to_install_it_is_named(tmp_path: Path, database: Database) -> None:
    with pytest.raises(MissingDependency) as caught:
        run_campaign(read_campaign(tmp_path / "tiny.yaml"), database, settings(NO_TORCH))
    assert caught.value.hint == "pip install 'tonnage[torch]'"


def test_a_gpu_that_is_not_there_is_named(tmp_path: Path, database: Database) -> None:
    with pytest.raises(Unreachable, match="torch finds no GPU"):
        run_campaign(read_campaign(tmp_path / "tiny.yaml"), database, Settings(device="cuda"))


class Killer:
    """Kills the measuring process while it measures the point that takes long."""

    def __init__(self) -> None:
        self.victims: list[str] = []

    def show(self, progress: Progress) -> None:
        if getattr(progress.current, "batch", None) == 2 and progress.current:
            self.victims.append(progress.current.key)
            for process in psutil.Process().children():
                if "tonnage.benchmark" in " ".join(process.cmdline()):
                    process.kill()

    def note(self, text: str) -> None:
        pass


def test_a_process_that_is_killed_is_replaced(tmp_path: Path, database: Database) -> None:
    killer = Killer()
    report = run_campaign(read_campaign(tmp_path / "tiny.yaml"), database, settings(SLOW), watcher=killer)
    ((_, row),) = database.measurements(status=Status.FAILED)
    assert (report.ok, report.failed, report.left) == (6, 1, 0)
    assert [row.key] == killer.victims
    assert row.message.startswith("the measuring process was ended by SIGKILL")

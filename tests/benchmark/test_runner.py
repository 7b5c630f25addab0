"""The runner: whatever its measuring process does, every job ends in a row and the run goes on."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tonnage.benchmark.campaign import Campaign
from tonnage.benchmark.campaign_file import read_campaign
from tonnage.benchmark.progress import Ending, Progress, Report
from tonnage.benchmark.runner import Settings, run_campaign
from tonnage.benchmark.work import all_jobs
from tonnage.errors import MissingDependency, TonnageError
from tonnage.store.database import Database, open_database
from tonnage.store.rows import Measurement, Status

FAKE = Path(__file__).with_name("fake_worker.py")
FOUR = "name: four\nworkloads:\n  - {family: mlp, sample: grid, vary: {batch: [1, 2, 4, 8]}}\n"


class Watching:
    """Remembers all it is told."""

    def __init__(self) -> None:
        self.shown: list[Progress] = []
        self.notes: list[str] = []

    def show(self, progress: Progress) -> None:
        self.shown.append(progress)

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with open_database(tmp_path / "benchmark.db") as opened:
        yield opened


def campaign(folder: Path, more: str = "") -> Campaign:
    path = folder / "campaign.yaml"
    path.write_text(FOUR + more)
    return read_campaign(path)


def settings(behaviour: str, **others: object) -> Settings:
    return Settings(device="cpu", command=(sys.executable, str(FAKE), behaviour), **others)  # type: ignore[arg-type]


def rows(database: Database) -> list[Measurement]:
    return [measurement for _, measurement in database.measurements()]


def counts(report: Report) -> tuple[int, int, int, int]:
    return report.ok, report.failed, report.skipped, report.left


# -- all is well ----------------------------------------------------------------------------------------------------------


def test_every_job_becomes_a_row(tmp_path: Path, database: Database) -> None:
    chosen = campaign(tmp_path, "layers: {count: 30}\n")
    report = run_campaign(chosen, database, settings("ok"))
    assert (counts(report), report.ending) == ((34, 0, 0, 0), Ending.COMPLETE)
    assert {row.key for row in rows(database)} == {job.key for job in all_jobs(chosen)}


def test_the_runner_itself_never_loads_torch() -> None:
    code = "import sys, tonnage.benchmark.runner, tonnage.cli.bench_run; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_is_known_is_passed_over(tmp_path: Path, database: Database) -> None:
    run_campaign(campaign(tmp_path), database, settings("ok"))
    report = run_campaign(campaign(tmp_path, "layers: {count: 3}\n"), database, settings("ok"))
    assert counts(report) == (3, 0, 4, 0)


def test_a_watcher_hears_what_is_measured_and_how_long_it_will_take(tmp_path: Path, database: Database) -> None:
    watching = Watching()
    run_campaign(campaign(tmp_path), database, settings("ok"), watcher=watching)
    assert [progress.done for progress in watching.shown] == [0, 1, 1, 2, 2, 3, 3, 4]
    assert all(progress.total == 4 for progress in watching.shown)
    assert watching.shown[0].remaining_seconds is None
    assert watching.shown[2].remaining_seconds is not None
    assert watching.shown[-1].remaining_seconds == 0


# -- time -----------------------------------------------------------------------------------------------------------------


def test_without_time_nothing_is_measured(tmp_path: Path, database: Database) -> None:
    report = run_campaign(campaign(tmp_path), database, settings("ok", budget_seconds=0.0))
    assert (counts(report), report.ending) == ((0, 0, 0, 4), Ending.OUT_OF_TIME)


def test_the_time_left_is_never_more_than_the_budget(tmp_path: Path, database: Database) -> None:
    watching = Watching()
    run_campaign(campaign(tmp_path), database, settings("ok", budget_seconds=30.0), watcher=watching)
    assert all((progress.remaining_seconds or 0) <= 30 for progress in watching.shown)


def test_a_wish_to_stop_keeps_what_was_measured(tmp_path: Path, database: Database) -> None:
    watching = Watching()
    report = run_campaign(
        campaign(tmp_path), database, settings("ok"), watcher=watching, should_stop=lambda: len(watching.shown) > 3
    )
    assert (counts(report), report.ending) == ((2, 0, 0, 2), Ending.INTERRUPTED)
    assert [row.status for row in rows(database)] == [Status.OK] * 2


def test_a_wish_to_stop_does_not_wait_for_the_running_job(tmp_path: Path, database: Database) -> None:
    watching = Watching()
    report = run_campaign(
        campaign(tmp_path), database, settings("hangs"), watcher=watching, should_stop=lambda: bool(watching.shown)
    )
    assert (counts(report), report.ending) == ((0, 0, 0, 4), Ending.INTERRUPTED)
    assert rows(database) == []


# -- processes that die ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ("killed", "the measuring process was ended by SIGKILL (perhaps for want of memory on the host)"),
        ("exits", "the measuring process ended with code 7: CUDA error: an illegal memory access was encountered"),
        ("broken", "RuntimeError: CUDA error: unspecified launch failure"),
    ],
)
def test_the_job_that_killed_the_process_has_failed(
    tmp_path: Path, database: Database, behaviour: str, reason: str
) -> None:
    watching = Watching()
    report = run_campaign(campaign(tmp_path), database, settings(f"{behaviour}:4"), watcher=watching)
    (failed,) = [row for row in rows(database) if row.status is Status.FAILED]
    assert (counts(report), report.ending) == ((3, 1, 0, 0), Ending.COMPLETE)
    assert (failed.batch, failed.message) == (4, reason)
    assert watching.notes == [f"mlp training, batch 4, float32 failed: {reason}"]


def test_a_job_that_takes_too_long_has_failed(tmp_path: Path, database: Database) -> None:
    report = run_campaign(campaign(tmp_path, "limit: 1 s\n"), database, settings("hangs:4"))
    (failed,) = [row for row in rows(database) if row.status is Status.FAILED]
    assert (counts(report), failed.message) == ((3, 1, 0, 0), "took longer than 1 s")


def test_a_layer_does_not_take_its_neighbours_along(tmp_path: Path, database: Database) -> None:
    chosen = campaign(tmp_path, "layers: {count: 12, kinds: [unary, copy]}\n")
    victims = [layer.key for layer in chosen.layers if layer.kind == "copy"]
    report = run_campaign(chosen, database, settings("killed:copy"))
    assert 0 < len(victims) < 12
    assert counts(report) == (16 - len(victims), len(victims), 0, 0)
    assert {row.key for row in rows(database) if row.status is Status.FAILED} == set(victims)


def test_a_process_that_dies_before_it_began_gets_another_try_and_then_the_blame(
    tmp_path: Path, database: Database
) -> None:
    report = run_campaign(campaign(tmp_path), database, settings("mute:4"))
    assert counts(report) == (3, 1, 0, 0)


def test_what_failed_is_measured_again_only_if_asked_for(tmp_path: Path, database: Database) -> None:
    run_campaign(campaign(tmp_path), database, settings("killed:4"))
    passed_over = run_campaign(campaign(tmp_path), database, settings("ok"))
    again = run_campaign(campaign(tmp_path), database, settings("ok", again_failed=True))
    assert (counts(passed_over), passed_over.failed_before) == ((0, 0, 4, 0), 1)
    assert (counts(again), again.failed_before) == ((1, 0, 3, 0), 0)
    assert [row.status for row in rows(database)] == [Status.OK] * 4


# -- processes that do not start ------------------------------------------------------------------------------------------


def test_a_process_that_never_starts_is_one_error(tmp_path: Path, database: Database) -> None:
    with pytest.raises(TonnageError) as caught:
        run_campaign(campaign(tmp_path), database, settings("silent"))
    assert caught.value.message == (
        "measuring could not start, 3 times in a row: the measuring process ended with code 1: Illegal instruction"
    )


def test_a_refusal_is_passed_on(tmp_path: Path, database: Database) -> None:
    with pytest.raises(MissingDependency) as caught:
        run_campaign(campaign(tmp_path), database, settings("refuses"))
    assert (caught.value.message, caught.value.hint) == ("measuring needs torch", "pip install 'tonnage[torch]'")

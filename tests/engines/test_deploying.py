"""Deployments: written down, found again, stopped and forgotten; nothing half-deployed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tonnage.engines import deploying
from tonnage.engines.base import EngineOptions, Job, JobId, JobState
from tonnage.engines.deploying import Deployments, deploy, status_of, statuses, stop, wait
from tonnage.engines.fake import FakeEngine, FakeRun
from tonnage.engines.folders import write_json
from tonnage.errors import InvalidFile, NotFound, TonnageError, Unreachable, UsageError


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    engine = FakeEngine(scripts={"sleep": FakeRun(polls=None), "fail": FakeRun(exit_code=7)})
    monkeypatch.setattr(deploying, "find_engine", lambda name: engine)
    return engine


@pytest.fixture
def deployments(tmp_path: Path) -> Deployments:
    return Deployments(tmp_path / "deployments")


def put(engine: FakeEngine, deployments: Deployments, name: str, command: str = "sleep") -> deploying.Deployment:
    return deploy(Job(name=name, command=(command,), ports=()), engine, EngineOptions(), deployments)


def test_a_deployment_is_found_again(engine: FakeEngine, deployments: Deployments) -> None:
    made = put(engine, deployments, "train-1")
    assert Deployments(deployments.folder).find("train-1") == made
    assert deployments.find("tr") == made


def test_two_that_begin_alike_are_told_apart(engine: FakeEngine, deployments: Deployments) -> None:
    short, _ = put(engine, deployments, "train"), put(engine, deployments, "train-2")
    assert deployments.find("train") == short
    with pytest.raises(UsageError, match="could be train, train-2"):
        deployments.find("tra")
    with pytest.raises(NotFound, match="no deployment 'x'"):
        deployments.find("x")
    with pytest.raises(NotFound):
        deployments.find("")


def test_an_engine_that_does_not_answer_leaves_nothing(engine: FakeEngine, deployments: Deployments) -> None:
    engine.is_reachable = False
    with pytest.raises(Unreachable):
        put(engine, deployments, "train")
    assert list(deployments.all()) == []
    engine.is_reachable = True
    put(engine, deployments, "train")


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_job_that_cannot_be_written_down_is_ended(
    engine: FakeEngine, deployments: Deployments, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    fail_to_write(deployments, monkeypatch, failure)
    with pytest.raises(type(failure)):
        put(engine, deployments, "train")
    assert list(engine.jobs()) == []
    assert list(deployments.all()) == []


def test_a_job_that_cannot_be_ended_can_still_be_found(
    engine: FakeEngine, deployments: Deployments, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_to_write(deployments, monkeypatch, OSError(28, "No space left on device"))
    monkeypatch.setattr(engine, "cancel", lambda job_id: engine._find(JobId("not-there")))
    with pytest.raises(OSError, match="No space"):
        put(engine, deployments, "train")
    assert status_of(deployments.find("train")).state is JobState.RUNNING


def fail_to_write(deployments: Deployments, monkeypatch: pytest.MonkeyPatch, failure: BaseException) -> None:
    """When the job runs already."""
    write = deployments.write

    def fail(deployment: deploying.Deployment) -> None:
        if deployment.job_id:
            raise failure
        write(deployment)

    monkeypatch.setattr(deployments, "write", fail)


def test_a_file_that_cannot_be_written_leaves_no_half(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        write_json(tmp_path / "x.json", {"x": object()})
    assert list(tmp_path.iterdir()) == []


def test_a_name_is_used_once(engine: FakeEngine, deployments: Deployments) -> None:
    made = put(engine, deployments, "train")
    with pytest.raises(UsageError, match="already"):
        put(engine, deployments, "train")
    assert deployments.find("train") == made


def test_silent_engines_do_not_hide_the_others(engine: FakeEngine, deployments: Deployments) -> None:
    put(engine, deployments, "train")
    engine.is_reachable = False
    ((_, status),) = statuses(deployments)
    assert (status.state, status.reason) == (JobState.UNKNOWN, "the fake engine was told not to answer")


def test_stopping_may_be_repeated_and_forgets_when_told_to(engine: FakeEngine, deployments: Deployments) -> None:
    made = put(engine, deployments, "train")
    assert stop(made, deployments).state is JobState.CANCELLED
    assert stop(made, deployments).state is JobState.CANCELLED
    stop(made, deployments, remove=True)
    assert list(deployments.all()) == []
    assert list(engine.jobs()) == []


def test_a_start_that_was_cut_off_can_be_stopped(engine: FakeEngine, deployments: Deployments) -> None:
    made = replace(put(engine, deployments, "train"), job_id=JobId(""))
    deployments.write(made)
    assert status_of(deployments.find("train")).state is JobState.RUNNING
    assert stop(made, deployments, remove=True).state is JobState.CANCELLED
    assert list(engine.jobs()) == []


def test_a_start_that_was_cut_off_is_found_where_it_was_asked_for(
    engine: FakeEngine, deployments: Deployments, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = engine.plan(Job(name="train", command=("sleep",)), EngineOptions())
    monkeypatch.setattr(engine, "plan", lambda *_: replace(manifest, job_id=JobId("vision/train")))
    found: list[JobId] = []
    monkeypatch.setattr(engine, "submit", lambda _: found.append(deployments.find("train").name_there) or found[0])
    put(engine, deployments, "train")
    assert found == ["vision/train"]


def test_a_damaged_file_is_one_deployment_that_can_be_forgotten(engine: FakeEngine, deployments: Deployments) -> None:
    put(engine, deployments, "train")
    (deployments.folder / "broken.json").write_text("{not JSON")
    (deployments.folder / "empty-words.json").write_text('{"id": 5}')
    rows = {made.id: status for made, status in statuses(deployments)}
    assert set(rows) == {"train", "broken", "empty-words"}
    assert "damaged" in rows["broken"].reason
    with pytest.raises(InvalidFile):
        stop(deployments.find("broken"), deployments)
    for name in ("broken", "empty-words"):
        stop(deployments.find(name), deployments, remove=True)
    assert [made.id for made in deployments.all()] == ["train"]


def test_what_is_gone_can_be_forgotten(engine: FakeEngine, deployments: Deployments) -> None:
    made = put(engine, deployments, "train")
    engine.cancel(made.job_id)
    engine.remove(made.job_id)
    with pytest.raises(NotFound):
        stop(made, deployments)
    assert stop(made, deployments, remove=True).reason == "it was gone already"
    assert list(deployments.all()) == []


def test_waiting_ends_with_the_job(engine: FakeEngine, deployments: Deployments) -> None:
    status = wait(put(engine, deployments, "train", "fail"), engine)
    assert (status.state, status.exit_code) == (JobState.FAILED, 7)


def test_waiting_has_an_end(engine: FakeEngine, deployments: Deployments) -> None:
    with pytest.raises(TonnageError, match=r"still running after 0\.1 s"):
        wait(put(engine, deployments, "train"), engine, seconds=0.1)

"""What every engine keeps: inherit `EngineContract`, give it an `engine` and jobs, and all of this is tried."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tonnage.engines.base import Engine, EngineOptions, Job, JobId, JobState, JobStatus, Lists, Removes, StreamsLogs
from tonnage.engines.names import fresh_name
from tonnage.errors import NotFound, UsageError

SECONDS = 120.0  # a limit; on a busy machine things take their time
# What the jobs of the contract do, as Python programs.
PROGRAMS = {
    "hello": "print('hello'); print('world')",
    "fail": "import sys; print('no'); sys.exit(7)",
    "sleep": "import time; print('asleep', flush=True); time.sleep(600)",
    "short": "import time; time.sleep(1)",
}


def wait_for(engine: Engine, job_id: JobId, wanted: Callable[[JobStatus], bool]) -> JobStatus:
    deadline = time.monotonic() + SECONDS
    while not wanted(status := engine.state(job_id)):
        assert time.monotonic() < deadline, f"{job_id} is still {status}"
        time.sleep(0.05)
    return status


def is_over(status: JobStatus) -> bool:
    return status.state.is_over


class EngineContract:
    """The same states and errors everywhere."""

    @pytest.fixture
    def engine(self) -> Iterator[Engine]:
        raise NotImplementedError

    def job(self, program: str) -> Job:
        """A job that does what `PROGRAMS` says."""
        raise NotImplementedError

    @pytest.fixture
    def submit(self, engine: Engine) -> Iterator[Callable[..., JobId]]:
        """Submits a program of the contract; whatever was submitted is gone afterwards."""
        made: list[JobId] = []

        def submit(program: str, **changes: object) -> JobId:
            job = replace(self.job(program), **{"name": fresh_name(f"contract-{program}"), **changes})
            made.append(engine.submit(engine.plan(job, EngineOptions())))
            return made[-1]

        yield submit
        for job_id in made:
            engine.cancel(job_id)
            assert isinstance(engine, Removes)
            engine.remove(job_id)

    def test_a_job_runs_and_succeeds(self, engine: Engine, submit: Callable[..., JobId]) -> None:
        job_id = submit("short")
        wait_for(engine, job_id, lambda status: status.state is JobState.RUNNING)
        status = wait_for(engine, job_id, is_over)
        assert (status.state, status.exit_code) == (JobState.SUCCEEDED, 0)
        assert status.started_at is not None
        assert status.ended_at is not None
        assert status.ended_at >= status.started_at

    def test_a_failing_command_keeps_its_exit_code(self, engine: Engine, submit: Callable[..., JobId]) -> None:
        status = wait_for(engine, submit("fail"), is_over)
        assert (status.state, status.exit_code) == (JobState.FAILED, 7)

    def test_cancelling_twice_is_the_same_as_once(self, engine: Engine, submit: Callable[..., JobId]) -> None:
        job_id = submit("sleep")
        wait_for(engine, job_id, lambda status: status.state is JobState.RUNNING)
        engine.cancel(job_id)
        engine.cancel(job_id)
        assert wait_for(engine, job_id, is_over).state is JobState.CANCELLED

    def test_cancelling_what_is_over_changes_nothing(self, engine: Engine, submit: Callable[..., JobId]) -> None:
        job_id = submit("fail")
        before = wait_for(engine, job_id, is_over)
        engine.cancel(job_id)
        assert engine.state(job_id) == before

    def test_logs_are_what_was_printed(self, engine: Engine, submit: Callable[..., JobId]) -> None:
        assert isinstance(engine, StreamsLogs)
        job_id = submit("hello")
        wait_for(engine, job_id, is_over)
        assert list(engine.logs(job_id)) == ["hello", "world"]
        assert list(engine.logs(job_id, follow=True)) == ["hello", "world"]

    def test_an_unknown_id_is_not_found(self, engine: Engine) -> None:
        assert isinstance(engine, StreamsLogs)
        for ask in (engine.state, engine.cancel, engine.logs):
            with pytest.raises(NotFound):
                ask(JobId("no-such-job"))

    def test_the_state_stays_after_the_end(self, engine: Engine, submit: Callable[..., JobId]) -> None:
        job_id = submit("hello")
        assert wait_for(engine, job_id, is_over) == engine.state(job_id)

    def test_labels_come_back(self, engine: Engine, submit: Callable[..., JobId]) -> None:
        labels = {"team": "vision", "tonnage.program-digest": "sha256:" + "0" * 64}
        job_id = submit("hello", labels=labels)
        assert isinstance(engine, Lists)
        assert {listed: found for listed, _, found in engine.jobs()}[job_id] == labels

    def test_a_name_is_used_once(self, engine: Engine, submit: Callable[..., JobId]) -> None:
        submit("hello", name="contract-twice")
        manifest = engine.plan(replace(self.job("hello"), name="contract-twice"), EngineOptions())
        with pytest.raises(UsageError, match="contract-twice"):
            engine.submit(manifest)

    def test_what_was_removed_is_gone(self, engine: Engine) -> None:
        manifest = engine.plan(self.job("hello"), EngineOptions())
        job_id = engine.submit(manifest)
        assert (manifest.job_id or manifest.name) == job_id  # by which a start that was cut off is found
        wait_for(engine, job_id, is_over)
        assert isinstance(engine, Removes)
        engine.remove(job_id)
        with pytest.raises(NotFound):
            engine.state(job_id)

    def test_what_runs_cannot_be_removed(self, engine: Engine, submit: Callable[..., JobId]) -> None:
        job_id = submit("sleep")
        assert isinstance(engine, Removes)
        with pytest.raises(UsageError, match="still running"):
            engine.remove(job_id)

    @pytest.mark.parametrize("name", ["", "Upper", "under_score", "-x", "x-", "1x", "x" * 51, "a b", "../x", "--help"])
    def test_invalid_names_are_refused(self, engine: Engine, name: str) -> None:
        with pytest.raises(UsageError, match="cannot be a name"):
            engine.plan(replace(self.job("hello"), name=name), EngineOptions())

    def test_a_plan_can_be_read_and_is_always_the_same(self, engine: Engine) -> None:
        job = self.job("hello")
        first, second = engine.plan(job, EngineOptions()), engine.plan(job, EngineOptions())
        assert first == second
        assert job.name in first.text or engine.name == "local"

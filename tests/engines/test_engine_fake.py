"""The engine in memory keeps the contract, and what other rooms' tests rely on."""

from __future__ import annotations

import pytest
from contract import EngineContract

from tonnage.engines.base import Engine, EngineOptions, Job, JobId, JobState
from tonnage.engines.fake import FakeEngine, FakeRun
from tonnage.errors import Unreachable

RUNS = {
    "hello": FakeRun(lines=("hello", "world")),
    "fail": FakeRun(exit_code=7),
    "sleep": FakeRun(polls=None),
    "short": FakeRun(polls=2),
}


class TestFakeEngine(EngineContract):
    @pytest.fixture
    def engine(self) -> Engine:
        return FakeEngine(scripts=RUNS)

    def job(self, program: str) -> Job:
        return Job(name="contract", command=(program,))


def test_a_job_can_be_ended_by_hand() -> None:
    engine = FakeEngine(behave=lambda job: FakeRun(polls=None, reason=f"{job.name} was told so"))
    job_id = engine.submit(engine.plan(Job(name="x", command=("train",)), EngineOptions()))
    engine.finish(job_id, exit_code=137)
    status = engine.state(job_id)
    assert (status.state, status.exit_code, status.reason) == (JobState.FAILED, 137, "x was told so")


def test_an_engine_that_does_not_answer() -> None:
    with pytest.raises(Unreachable):
        FakeEngine(is_reachable=False).state(JobId("x"))

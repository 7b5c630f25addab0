"""GPUs are given to one running job at a time, whatever engine it is on."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from contract import PROGRAMS, is_over, wait_for

from tonnage.engines import free_gpus
from tonnage.engines.base import Job, JobId, JobState, Resources
from tonnage.engines.container_arguments import ContainerOptions, choose_gpus
from tonnage.engines.deploying import Deployment, Deployments
from tonnage.engines.fake import FakeEngine
from tonnage.engines.free_gpus import choose_free
from tonnage.engines.host import Host, HostGpu
from tonnage.engines.local import LocalEngine, LocalOptions
from tonnage.engines.processes import kill_group
from tonnage.engines.supervisor import STATE
from tonnage.errors import DoesNotFit, NotFound, Unreachable

H200S = tuple(HostGpu(index=index, name="NVIDIA H200", model="H200") for index in range(2))
HOST = Host(cores=(0,), memory_bytes=1 << 40, gpus=(*H200S, HostGpu(index=2, name="NVIDIA L4", model="L4")))


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[LocalEngine]:
    engine = LocalEngine(tmp_path / "local", HOST)
    yield engine
    for job_id, _, _ in engine.jobs():
        engine.cancel(job_id)


def submit(engine: LocalEngine, name: str, gpu: str = "H200", program: str = "sleep") -> JobId:
    show = f"import os; print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True); {PROGRAMS[program]}"
    job = Job(name=name, command=(sys.executable, "-c", show), resources=Resources(gpu_count=1, gpu=gpu))
    return engine.submit(engine.plan(job, LocalOptions()))


def seen(engine: LocalEngine, job_id: JobId) -> str:
    return next(engine.logs(job_id, follow=True))


def test_jobs_that_run_at_once_get_different_gpus(engine: LocalEngine) -> None:
    assert [seen(engine, submit(engine, name)) for name in ("first", "second")] == ["0", "1"]
    with pytest.raises(DoesNotFit) as caught:
        submit(engine, "third")
    assert caught.value.message == "1 H200 GPUs are wanted, this machine has 2, none of them free"
    assert caught.value.hint == (
        "first holds nvidia.com/gpu=0, second holds nvidia.com/gpu=1; wait, or end one with tonnage stop"
    )
    assert seen(engine, submit(engine, "other", "L4")) == "2"


def test_jobs_that_are_submitted_at_once_get_different_gpus(engine: LocalEngine) -> None:
    with ThreadPoolExecutor(2) as pool:
        jobs = list(pool.map(lambda name: submit(engine, name), ["first", "second"]))
    assert sorted(seen(engine, job) for job in jobs) == ["0", "1"]


def test_a_gpu_is_free_again_when_its_job_has_ended(engine: LocalEngine) -> None:
    wait_for(engine, submit(engine, "ended", program="hello"), is_over)
    assert seen(engine, submit(engine, "next")) == "0"
    engine.cancel(JobId("next"))
    assert seen(engine, submit(engine, "last")) == "0"


def test_a_gpu_is_free_again_when_its_job_was_killed_with_its_supervisor(engine: LocalEngine) -> None:
    job_id = submit(engine, "killed")
    state = json.loads((engine.folder / job_id / STATE).read_text())
    kill_group(state["supervisor"], state["supervisor_birth"])
    kill_group(state["pid"], state["birth"])
    assert wait_for(engine, job_id, is_over).state is JobState.FAILED
    assert seen(engine, submit(engine, "next")) == "0"


class Holding(FakeEngine):
    """Another engine, on which something runs."""

    is_silent = False

    def held_gpus(self) -> Iterator[tuple[str, JobId]]:
        if self.is_silent:
            raise Unreachable("no answer")
        yield "nvidia.com/gpu=0", JobId("in-a-container")


def deployed_on(name: str) -> None:
    Deployments().write(Deployment(id=f"on-{name}", engine=name, job_id=JobId(f"on-{name}")))


def test_other_engines_are_asked(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_gpus, "find_engine", lambda name: Holding())
    deployed_on("podman")
    assert seen(engine, submit(engine, "here")) == "1"
    with pytest.raises(DoesNotFit) as caught:
        submit(engine, "third")
    assert caught.value.hint.startswith("in-a-container holds nvidia.com/gpu=0, here holds nvidia.com/gpu=1")


def test_engines_that_cannot_be_asked_are_left_out(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> FakeEngine:
        if name == "gone":
            raise NotFound("there is no engine 'gone'")
        return Holding() if name == "silent" else FakeEngine()  # the last one knows nothing about GPUs

    monkeypatch.setattr(Holding, "is_silent", True)
    monkeypatch.setattr(free_gpus, "find_engine", find)
    for name in ("gone", "silent", "elsewhere"):
        deployed_on(name)
    assert seen(engine, submit(engine, "here")) == "0"


def test_containers_get_gpus_that_are_free() -> None:
    holders = {"nvidia.com/gpu=0": JobId("first")}
    chosen = choose_gpus(Resources(gpu_count=1), ContainerOptions(), HOST, (), holders)
    assert chosen == ["nvidia.com/gpu=1"]
    named = choose_gpus(Resources(gpu_count=1), ContainerOptions(devices="0"), HOST, (), holders)
    assert named == ["nvidia.com/gpu=0"]
    foreign = choose_gpus(Resources(gpu_count=1), ContainerOptions(cdi_kind="x.example/gpu"), HOST, (), holders)
    assert foreign == ["x.example/gpu=0"]


def test_a_gpu_that_cdi_names_twice_is_one_gpu() -> None:
    without_driver, cdi = Host(cores=(0,), memory_bytes=1), ("0", "GPU-3d8e")
    with pytest.raises(DoesNotFit, match="this machine has 1"):
        choose_gpus(Resources(gpu_count=2), ContainerOptions(), without_driver, cdi, {})
    assert choose_gpus(Resources(gpu_count=1), ContainerOptions(), without_driver, ("GPU-3d8e",), {})


def test_some_that_are_free_may_be_too_few() -> None:
    with pytest.raises(DoesNotFit, match="2 GPUs are wanted, this machine has 2, 1 of them free"):
        choose_free(2, ["a", "b"], {"a": JobId("x")})

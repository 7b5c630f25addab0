"""Plans for one machine with several GPUs, as processes and as containers: each task gets the very GPUs of the plan."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from plan_on import LIMIT_SECONDS, check_what_ran, follow, make, plan_and_orders
from podman_rig import FAKE_GPUS, fake_gpus, image, podman

from tonnage.allocate.problem import Problem
from tonnage.allocate.tasks_file import read_tasks
from tonnage.allocate.tasks_models import TasksFile
from tonnage.engines.base import JobId, JobState
from tonnage.engines.container_arguments import ContainerOptions
from tonnage.engines.containers import PodmanEngine
from tonnage.engines.deploying import Deployments
from tonnage.engines.host import Host, HostGpu
from tonnage.engines.local import LocalEngine, LocalOptions
from tonnage.planning.making import problem_of
from tonnage.planning.running import Run
from tonnage.planning.watching import Watch

__all__ = ["fake_gpus", "image", "podman"]

MODEL = "V100 SXM2 16GB"
GPUS = tuple(HostGpu(index=index, name="Tesla V100-SXM2-16GB", model=MODEL) for index in range(4))
# Tells which devices it has and when, in a container that has nothing but them.
PROGRAM = f"""
import json, os, time
begin = time.time()
time.sleep(3)
seen = [index for index in range({FAKE_GPUS}) if os.path.exists(f"/dev/fake-gpu-{{index}}")]
print(json.dumps({{"seen": seen, "begin": begin, "end": time.time()}}))
"""


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalEngine]:
    engine = LocalEngine(tmp_path / "local", Host(cores=(0, 1), memory_bytes=64 << 30, gpus=GPUS))
    yield engine
    for job_id, _, _ in engine.jobs():
        engine.cancel(job_id)


def test_a_plan_runs_as_processes_each_on_its_gpus_and_a_killed_one_starts_again(
    local: LocalEngine, tmp_path: Path
) -> None:
    problem, file = make(tmp_path, {"box": (MODEL, len(GPUS))}, MODEL, alike=8)
    plan, orders = plan_and_orders(problem, file, "run-a")
    run = Run(orders, local, LocalOptions(), Deployments())
    assert 0 < len(run.submit()) <= len(GPUS)  # the others wait for their turn
    follow(run)
    check_what_ran(tmp_path, problem, plan, run)


def test_a_gpu_that_somebody_else_holds_is_waited_for(local: LocalEngine, tmp_path: Path) -> None:
    problem, file = one_task(tmp_path, "import time; time.sleep(1)")
    other, run = (
        Run(plan_and_orders(problem, file, name)[1], local, LocalOptions(), Deployments())
        for name in ("first", "second")
    )
    assert other.submit() == ["t"]
    assert run.submit() == []
    assert run.tasks["t"].status.reason == "nvidia.com/gpu=0 is planned, first-t holds it"
    follow(run)
    assert run.tasks["t"].status.state is JobState.SUCCEEDED


@pytest.mark.parametrize(
    ("requeue", "starts"), [(True, 4), (False, 1)], ids=["as often as is allowed", "not where it is forbidden"]
)
def test_a_task_that_is_always_killed_ends_at_last(
    local: LocalEngine, tmp_path: Path, requeue: bool, starts: int
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    problem, file = one_task(
        tmp_path, f"import os, tempfile; tempfile.mkstemp(dir={str(marks)!r}); os.kill(os.getpid(), 9)", requeue=requeue
    )
    run = Run(plan_and_orders(problem, file, "run")[1], local, LocalOptions(), Deployments())
    run.submit()
    follow(run)
    status = run.tasks["t"].status
    assert (status.state, status.exit_code, status.restarts) == (JobState.FAILED, 137, starts - 1)
    assert len(list(marks.iterdir())) == starts
    assert [deployment.id for deployment in Deployments().all()] == [run.tasks["t"].order.job.name]


@pytest.fixture
def containers(image: str, tmp_path: Path) -> Iterator[PodmanEngine]:  # noqa: ARG001 - it must be there
    engine = PodmanEngine(tmp_path / "podman", Host(cores=(0, 1), memory_bytes=64 << 30))
    yield engine
    for deployment in Deployments().all():
        engine.cancel(deployment.name_there)
        engine.remove(deployment.name_there)


def test_a_plan_runs_in_containers_each_on_its_gpus_and_a_killed_one_starts_again(
    containers: PodmanEngine, image: str, fake_gpus: str, tmp_path: Path
) -> None:
    problem, file = one_task(tmp_path, PROGRAM, python="python3", gpus=FAKE_GPUS, count=7)
    plan, orders = plan_and_orders(problem, file, "run-a", image=image)
    run = Run(orders, containers, ContainerOptions(cdi_kind=fake_gpus), Deployments())
    watch = Watch(problem=problem, plan=plan, file=file, name="run-a", run=run, image=image)
    *_, killed = run.submit()  # which has just begun
    subprocess.run(["podman", "kill", run.tasks[killed].order.job.name], check=True, capture_output=True)
    deadline = time.monotonic() + LIMIT_SECONDS
    for _ in watch.follow(lambda seconds: time.sleep(0.1)):
        assert time.monotonic() < deadline
    assert {(each.status.state, each.status.reason) for each in run.tasks.values()} == {(JobState.SUCCEEDED, "")}
    restarts = {name: each.status.restarts for name, each in run.tasks.items()}
    assert restarts == dict.fromkeys(restarts, 0) | {killed: 1}
    told = {name: json.loads(*containers.logs(JobId(each.order.job.name))) for name, each in run.tasks.items()}
    for each in plan.assignments:
        assert tuple(f"box/gpu{index}" for index in told[each.task]["seen"]) == each.gpus
    for index in range(FAKE_GPUS):
        turns = sorted((each["begin"], each["end"]) for each in told.values() if each["seen"] == [index])
        assert len(turns) >= 2
        assert all(end <= begin for (_, end), (begin, _) in pairwise(turns))


def one_task(
    folder: Path, program: str, *, python: str = sys.executable, gpus: int = 1, **more: object
) -> tuple[Problem, TasksFile]:
    """Of a second, on a machine with so many GPUs."""
    machine = {"name": "box", "gpus": [{"model": MODEL, "count": gpus}], "cpu": {"cores": 8}, "memory": "16 GiB"}
    task = {
        "name": "t", "speeds": {MODEL: 1.0}, "steps": 1, "share": False, "main_memory": "128 MiB", "cpus": 0.5,
        "command": [python, "-c", program],
    }  # fmt: skip
    (folder / "cluster.yaml").write_text(json.dumps({"nodes": [machine]}))
    (folder / "tasks.yaml").write_text(json.dumps({"tasks": [task | more]}))
    file = read_tasks(folder / "tasks.yaml")
    problem, _ = problem_of(file, folder / "cluster.yaml")
    return problem, file

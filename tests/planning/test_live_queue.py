"""A tasks file that grows while its tasks run: on an engine in memory, as real processes, and on a real Slurm."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from slurm_rig import SlurmRig, slurm, slurm_rig, wait_until

from tonnage.allocate.tasks_file import read_tasks
from tonnage.engines.base import Engine, JobState
from tonnage.engines.deploying import Deployments
from tonnage.engines.fake import FakeEngine, FakeRun
from tonnage.engines.host import Host, HostGpu
from tonnage.engines.local import LocalEngine
from tonnage.engines.slurm import SlurmEngine
from tonnage.errors import Unreachable
from tonnage.hardware import read_cluster
from tonnage.planning import plan_for, problem_of
from tonnage.planning.live import LiveTasks
from tonnage.planning.orders import orders_of
from tonnage.planning.running import Run
from tonnage.planning.watching import Watch

__all__ = ["slurm", "slurm_rig"]


class Queue:
    """A machine with two GPUs, and a tasks file that grows."""

    def __init__(self, folder: Path, engine: Engine, node: str = "box", gpu: str = "T4") -> None:
        self.path, self.engine, self.gpu = folder / "tasks.yaml", engine, gpu
        self.said: list[str] = []
        self.path.write_text("tasks:\n")
        (folder / "cluster.yaml").write_text(
            f"nodes: [{{name: {node}, gpus: [{{model: {gpu}, count: 2}}], cpu: {{cores: 8}}, memory: 64 GiB}}]"
        )

    def write(self, name: str, command: str = "[run]", more: str = "priority: 1") -> None:
        with open(self.path, "a") as file:
            file.write(
                f"  - {{name: {name}, speeds: {{{self.gpu}: 1}}, steps: 10, share: false, cpus: 0.5, "
                f"main_memory: 128 MiB, command: {command}, {more}}}\n"
            )

    def watch(self) -> Watch:
        file, cluster = read_tasks(self.path), read_cluster(self.path.with_name("cluster.yaml"))
        problem, _ = problem_of(file, cluster)
        plan = plan_for(problem, seconds=0.2)
        run = Run(orders_of(problem, plan, file), self.engine, self.engine.Options(), Deployments())
        say = self.said.append
        return Watch(
            problem=problem, plan=plan, file=file, run=run, live=LiveTasks(self.path, say), cluster=cluster, say=say
        )


def nothing() -> None:
    pass


def follow(watch: Watch, *changes: Callable[[], object], seconds: float = 0.0) -> dict[str, JobState]:
    """To its end; one change is made in each pause."""
    left = list(changes)

    def pause(_: float) -> None:
        if left:
            left.pop(0)()
        time.sleep(seconds)

    deadline = time.monotonic() + 120
    for _ in watch.follow(pause):
        assert time.monotonic() < deadline
    assert left == []
    return {name: each.status.state for name, each in watch.run.tasks.items()}


def done(*names: str) -> dict[str, JobState]:
    return dict.fromkeys(names, JobState.SUCCEEDED)


@pytest.fixture
def fake() -> FakeEngine:
    return FakeEngine(behave=lambda job: FakeRun(polls=8))


@pytest.fixture
def queue(tmp_path: Path, fake: FakeEngine) -> Queue:
    queue = Queue(tmp_path, fake)
    for name in ("a", "b", "c"):
        queue.write(name)
    return queue


def test_a_task_that_is_added_runs_too(queue: Queue) -> None:
    watch = queue.watch()
    assert follow(watch, lambda: queue.write("late")) == done("a", "b", "c", "late")
    assert queue.said == ["new in the file: late"]


def test_what_runs_stays_and_what_is_added_waits_for_its_gpu(queue: Queue) -> None:
    watch = queue.watch()
    watch.run.submit()
    before = {name: each.order for name, each in watch.run.tasks.items() if each.deployment is not None}
    assert len(before) == 2
    follow(watch, lambda: queue.write("late", more="priority: 100, pin: [box/gpu0]"))
    assert {name: watch.run.tasks[name].order for name in before} == before
    holder = next(name for name, order in before.items() if order.places == ("box/gpu0",))
    assert holder in watch.run.tasks["late"].order.waits_for


def test_a_task_may_wait_for_one_that_is_over(queue: Queue) -> None:
    watch = queue.watch()
    add = [*[nothing] * 9, lambda: queue.write("late", more="after: [a, b]")]
    assert follow(watch, *add) == done("a", "b", "c", "late")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tasks: [", "tasks.yaml"),
        ("", "tasks.yaml"),
        ("tasks: [{name: late, speeds: {T4: 1}, steps: 1, command: [run], after: [nobody]}]", "late waits for nobody"),
        ("tasks: [{name: late, speeds: {T4: 1}, steps: 1}]", "late has speeds and nothing that could be run"),
    ],
    ids=["no YAML", "empty", "waits for nobody", "nothing to run"],
)
def test_a_broken_file_is_told_of_once_and_the_known_tasks_go_on(queue: Queue, text: str, words: str) -> None:
    watch, whole = queue.watch(), queue.path.read_text()
    changes = [lambda: queue.path.write_text(text), *[nothing] * 4, lambda: queue.path.write_text(whole)]
    assert follow(watch, *changes, lambda: queue.write("late")) == done("a", "b", "c", "late")
    warning, added = queue.said
    assert words in warning
    assert warning.endswith(": the tasks that are known go on")
    assert added == "new in the file: late"


def test_a_file_that_is_gone_is_told_of_and_its_tasks_go_on(queue: Queue) -> None:
    assert follow(queue.watch(), queue.path.unlink) == done("a", "b", "c")
    assert len(queue.said) == 1


def test_what_fits_nowhere_is_told_and_the_rest_is_run(queue: Queue) -> None:
    watch = queue.watch()
    queue.write("huge", more="memory: 900 GiB")
    queue.write("late")
    assert follow(watch) == done("a", "b", "c", "late")
    assert watch.unplaced.keys() == {"huge"}
    assert queue.said[1].startswith("not placed: huge: needs 900")


def test_a_longer_file_that_is_submitted_again_runs_only_what_is_new(queue: Queue, fake: FakeEngine) -> None:
    follow(queue.watch())
    queue.write("late")
    again = queue.watch()
    again.run.look()
    assert again.run.submit() == ["late"]
    assert follow(again) == done("a", "b", "c", "late")
    assert len(list(fake.jobs())) == 4


def test_a_silent_engine_is_borne_with_and_told_of_once(queue: Queue, fake: FakeEngine) -> None:
    silence, answer = (lambda: setattr(fake, "is_reachable", False)), (lambda: setattr(fake, "is_reachable", True))
    assert follow(queue.watch(), silence, nothing, nothing, answer) == done("a", "b", "c")
    assert queue.said == ["the fake engine was told not to answer; trying again"]


def test_an_engine_that_never_answered_is_an_error(queue: Queue, fake: FakeEngine) -> None:
    watch = queue.watch()
    watch.run.submit()
    fake.is_reachable = False
    with pytest.raises(Unreachable):
        follow(watch)


# -- real ones ------------------------------------------------------------------------------------------------------------

SHOW = f"[{sys.executable}, -c, \"import os, time; print(os.environ['CUDA_VISIBLE_DEVICES']); time.sleep(1)\"]"


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalEngine]:
    gpus = tuple(HostGpu(index=index, name="Tesla T4", model="T4") for index in range(2))
    engine = LocalEngine(tmp_path / "local", Host(cores=(0, 1), memory_bytes=64 << 30, gpus=gpus))
    yield engine
    for job_id, _, _ in engine.jobs():
        engine.cancel(job_id)


def test_processes_are_added_beside_those_that_run(local: LocalEngine, tmp_path: Path) -> None:
    queue = Queue(tmp_path, local)
    for name in ("a", "b", "c"):
        queue.write(name, SHOW)
    watch = queue.watch()
    add = [lambda: queue.write("d", SHOW), lambda: queue.write("e", SHOW, "pin: [box/gpu1]")]
    assert follow(watch, *add, seconds=0.2) == done("a", "b", "c", "d", "e")
    for each in watch.run.tasks.values():
        assert each.deployment is not None
        assert [f"box/gpu{seen}" for seen in local.logs(each.deployment.name_there)] == list(each.status.devices)


def test_what_cannot_be_started_is_told_of_and_the_rest_goes_on(local: LocalEngine, tmp_path: Path) -> None:
    queue = Queue(tmp_path, local)
    queue.write("a", SHOW)
    watch = queue.watch()
    watch.run.submit()
    queue.write("wrong", "[no-such-program]")
    queue.write("late", SHOW)
    assert follow(watch, seconds=0.2) == done("a", "late") | {"wrong": JobState.FAILED}
    assert queue.said[0] == "new in the file: wrong, late"
    assert queue.said[1].startswith("wrong cannot be submitted: ")
    assert "No such file" in watch.run.tasks["wrong"].status.reason
    assert len(queue.said) == 2


def test_jobs_are_added_to_a_real_queue(slurm: SlurmEngine, tmp_path: Path) -> None:
    queue = Queue(tmp_path, slurm, "p100n0", "P100 SXM2")
    for name in ("a", "b", "c"):
        queue.write(name, SHOW)
    watch = queue.watch()
    assert follow(watch, lambda: queue.write("late", SHOW), seconds=0.3) == done("a", "b", "c", "late")
    assert watch.run.tasks["late"].status.devices[0].startswith("p100n0/gpu")


def test_a_restart_of_slurms_controller_is_borne_with(slurm: SlurmEngine, slurm_rig: SlurmRig, tmp_path: Path) -> None:
    queue = Queue(tmp_path, slurm, "p100n0", "P100 SXM2")
    for name in ("a", "b", "c"):
        queue.write(name, SHOW)
    watch = queue.watch()
    watch.run.submit()
    changes = [nothing, lambda: slurm_rig.stop("slurmctld"), lambda: slurm_rig.start("slurmctld")]
    assert follow(watch, *changes, seconds=0.3) == done("a", "b", "c")
    assert len(queue.said) == 1
    assert queue.said[0].startswith("Slurm does not answer: ")
    wait_until(slurm_rig.is_ready)

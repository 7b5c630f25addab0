"""Plans on an engine in memory: orders, what is submitted when, and what happens to the rest if something fails."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import pytest

from tonnage.allocate.problem import Device
from tonnage.allocate.tasks_file import read_tasks
from tonnage.allocate.tasks_models import TasksFile
from tonnage.engines.base import EngineOptions, Job, JobId, JobState, JobStatus, NodeInventory
from tonnage.engines.deploying import Deployments
from tonnage.engines.fake import FakeEngine, FakeRun
from tonnage.errors import Unreachable, UsageError
from tonnage.planning import plan_for, problem_of
from tonnage.planning.fitting import pinned_as_submitted
from tonnage.planning.orders import Order, job_name, orders_of, run_name
from tonnage.planning.replanning import Away, plan_anew
from tonnage.planning.running import Run
from tonnage.planning.watching import Watch

CLUSTER = """
nodes:
  - {name: n, count: 2, gpus: [{model: T4, count: 1}], cpu: {cores: 8}, memory: 64 GiB}
"""
TASKS = """
tasks:
  - {name: a, speeds: {T4: 1}, steps: 10, count: 4, share: false, command: [run]}
  - {name: Last_one, speeds: {T4: 1}, steps: 10, share: false, after: [a-0], command: [run]}
"""


@dataclass
class QueueEngine(FakeEngine):
    """One that keeps a queue, and nodes that may be lost."""

    queues_jobs: ClassVar[bool] = True
    down: set[str] = field(default_factory=set)
    closed: set[str] = field(default_factory=set)

    def inventory(self, options: EngineOptions | None = None) -> tuple[NodeInventory, ...]:  # noqa: ARG002 - as all
        return tuple(
            NodeInventory(
                name=name,
                gpus={"T4": 1},
                cpu_cores=8,
                memory_bytes=1 << 36,
                is_up=name not in self.down | self.closed,
                is_lost=name in self.down,
            )
            for name in ("n-0", "n-1")
        )

    def models_called(self, name: str, options: EngineOptions) -> tuple[str, ...]:  # noqa: ARG002 - as all engines
        return (name,)


def read(folder: Path, tasks: str = TASKS) -> TasksFile:
    (folder / "tasks.yaml").write_text(tasks)
    return read_tasks(folder / "tasks.yaml")


def made(folder: Path, file: TasksFile) -> Watch:
    (folder / "cluster.yaml").write_text(CLUSTER)
    problem, _ = problem_of(file, folder / "cluster.yaml")
    plan = plan_for(problem, seconds=0.2)
    orders = orders_of(problem, plan, file, "run-x")
    run = Run(orders, FakeEngine(), FakeEngine.Options(), Deployments(folder / "deployments"))
    return Watch(problem=problem, plan=plan, file=file, name="run-x", run=run)


def orders(watch: Watch) -> dict[str, Order]:
    return {name: each.order for name, each in watch.run.tasks.items()}


def test_a_job_waits_for_those_that_have_its_gpus_before(tmp_path: Path) -> None:
    watch = made(tmp_path, read(tmp_path))
    places = {each.task: each.gpus for each in watch.plan.assignments}
    starts = {each.task: each.start_seconds for each in watch.plan.assignments}
    for name, order in orders(watch).items():
        before = [other for other in places if places[other] == places[name] and starts[other] < starts[name]]
        latest = max(before, key=lambda other: starts[other], default=None)
        assert latest is None or latest in order.waits_for
    assert "a-0" in orders(watch)["Last_one"].waits_for


def test_jobs_have_the_places_of_the_plan(tmp_path: Path) -> None:
    watch = made(tmp_path, read(tmp_path))
    for each in watch.plan.assignments:
        (placement,) = orders(watch)[each.task].job.placements
        assert (f"{placement.node}/gpu{placement.gpu_indices[0]}",) == each.gpus
        assert (placement.gpu, placement.share) == ("T4", 1.0)


def test_names_of_jobs_are_valid_and_differ() -> None:
    assert job_name("run-1", "a-0") == "run-1-a-0"
    assert job_name("run-1", "Last_one") != job_name("run-1", "last.one")
    assert job_name("run-1", "Last_one").startswith("run-1-last-one-")


def test_the_same_task_has_the_same_name_whatever_else_the_file_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = read(tmp_path).tasks[0]
    same = read(tmp_path, TASKS.replace("count: 4", "count: 9, priority: 3")).tasks[0]
    other = read(tmp_path, TASKS.replace("[run]", "[run, --fast]")).tasks[0]
    here = run_name(task)
    assert here == run_name(same) != run_name(other)
    monkeypatch.chdir(tmp_path)
    assert run_name(task) != here


def test_an_engine_without_a_queue_gets_jobs_when_their_turn_comes(tmp_path: Path) -> None:
    watch = made(tmp_path, read(tmp_path))
    assert len(watch.run.submit()) == 2  # one a GPU
    assert watch.run.submit() == []
    states = [(each.task, each.status.state) for each in watch.follow(lambda seconds: None)]
    assert {name for name, state in states if state == "succeeded"} == {"a-0", "a-1", "a-2", "a-3", "Last_one"}


def test_an_engine_with_a_queue_gets_all_at_once(tmp_path: Path) -> None:
    watch = made(tmp_path, read(tmp_path))
    watch.run.engine = QueueEngine()
    assert len(watch.run.submit()) == 5
    last = watch.run.engine._entries[JobId(orders(watch)["Last_one"].job.name)].job
    assert JobId("run-x-a-0") in last.after


def test_submitting_again_runs_nothing_twice(tmp_path: Path) -> None:
    watch = made(tmp_path, read(tmp_path))
    watch.run.engine = QueueEngine()
    watch.run.submit()
    again = Run(list(orders(watch).values()), watch.run.engine, FakeEngine.Options(), watch.run.deployments)
    assert again.submit() == []
    assert len(watch.run.engine._entries) == 5


def killed_once(engine: FakeEngine) -> None:
    """Its first job is killed, all others succeed."""
    engine.behave = lambda job: FakeRun(exit_code=0 if engine._entries else 137, polls=0)


def test_a_killed_task_starts_again_where_the_engine_does_not_see_to_it(tmp_path: Path) -> None:
    watch = made(tmp_path, read(tmp_path))
    killed_once(watch.run.engine)  # type: ignore[arg-type]
    first = next(iter(watch.run.tasks))
    states = [(each.task, each.status.state) for each in watch.follow(lambda seconds: None)]
    assert states[0] == (first, "failed")
    assert {each.status.state for each in watch.run.tasks.values()} == {"succeeded"}
    assert {name: each.status.restarts for name, each in watch.run.tasks.items() if each.status.restarts} == {first: 1}


def test_a_task_that_was_started_again_is_known_to_the_next_command(tmp_path: Path) -> None:
    watch = made(tmp_path, read(tmp_path))
    engine = watch.run.engine
    killed_once(engine)  # type: ignore[arg-type]
    before = orders(watch)
    first, _ = watch.run.submit()
    watch.run.look()
    watch.run.submit()
    again = Run(list(before.values()), engine, FakeEngine.Options(), watch.run.deployments)
    found = again.tasks[first]
    assert found.deployment is not None
    assert (found.deployment.id, found.order.attempt) == (job_name("run-x", first, 1), 1)
    again.look()
    assert again.tasks[first].status.restarts == 1
    again.submit()
    assert JobId(before[first].job.name) not in engine._entries  # type: ignore[attr-defined]


def test_a_task_whose_job_somebody_removed_is_not_started_again(tmp_path: Path) -> None:
    watch = made(tmp_path, read(tmp_path))
    first, _ = watch.run.submit()
    engine = watch.run.engine
    assert isinstance(engine, FakeEngine)
    del engine._entries[JobId(f"run-x-{first}")]
    watch.run.look()
    status = watch.run.tasks[first].status
    assert (status.state, status.reason, status.restarts) == ("failed", f"there is no job 'run-x-{first}'", 0)


def test_tasks_that_were_submitted_elsewhere_are_not_submitted_here(tmp_path: Path) -> None:
    watch = made(tmp_path, read(tmp_path))
    watch.run.submit()

    class Other(FakeEngine):
        name = "other"

    with pytest.raises(UsageError, match="was submitted to fake already") as caught:
        Run(list(orders(watch).values()), Other(), FakeEngine.Options(), watch.run.deployments)
    assert "--run" in caught.value.hint


def test_a_plan_that_is_made_again_keeps_to_where_tasks_were_submitted(tmp_path: Path) -> None:
    watch = made(tmp_path, read(tmp_path))
    watch.run.submit()
    places = {name: each.order.places for name, each in watch.run.tasks.items() if each.deployment is not None}
    pinned = pinned_as_submitted(watch.problem, watch.file, "run-x", watch.run.deployments)
    assert {task.name: task.pinned for task in pinned.tasks if task.pinned} == places
    others = replace(watch.problem, devices=(Device(place="other/gpu0", gpu="T4", memory_bytes=1),))
    assert not any(
        task.pinned for task in pinned_as_submitted(others, watch.file, "run-x", watch.run.deployments).tasks
    )


def test_nothing_stays_submitted_if_one_cannot_be(tmp_path: Path) -> None:
    watch = made(tmp_path, read(tmp_path))

    class Failing(QueueEngine):
        def submit(self, manifest: object) -> JobId:
            if len(self._entries) == 3:
                raise Unreachable("gone")
            return super().submit(manifest)  # type: ignore[arg-type]

    watch.run.engine = Failing()
    with pytest.raises(Unreachable):
        watch.run.submit()
    assert list(watch.run.deployments.all()) == []
    assert watch.run.engine._entries == {}


def test_tasks_of_a_lost_node_are_planned_anew(tmp_path: Path) -> None:
    watch = made(tmp_path, read(tmp_path))

    def behave(job: Job) -> FakeRun:
        return FakeRun(polls=None if job.placements[0].node == "n-1" else 1)  # on a lost node nothing ever ends

    engine = QueueEngine(behave=behave, down={"n-1"})
    watch.run.engine = engine
    said: list[str] = []
    watch.say = said.append
    for _ in watch.follow(lambda seconds: None):
        pass
    assert {each.status.state for each in watch.run.tasks.values()} == {"succeeded"}
    assert all(each.gpus == ("n-0/gpu0",) for each in watch.plan.assignments)
    assert said[0].startswith("n-1 lost: ")


def test_a_task_that_fails_with_its_node_is_planned_anew_even_if_it_is_the_last(tmp_path: Path) -> None:
    watch = made(tmp_path, read(tmp_path))

    def behave(job: Job) -> FakeRun:
        if job.placements[0].node == "n-1":
            engine.down.add("n-1")  # it takes the node along
            return FakeRun(exit_code=1, polls=0)
        return FakeRun(polls=0)

    engine = watch.run.engine = QueueEngine(behave=behave)
    for _ in watch.follow(lambda seconds: None):
        pass
    assert {each.status.state for each in watch.run.tasks.values()} == {"succeeded"}


def test_what_was_moved_from_a_lost_node_does_not_go_back_there(tmp_path: Path) -> None:
    watch = made(tmp_path, read(tmp_path))
    watch.run.engine = QueueEngine(down={"n-1"}, behave=lambda job: FakeRun(polls=None))
    watch.run.submit()
    watch.run.look()
    assert watch._look_for_losses()
    assert not watch._look_for_losses()
    assert watch._away.lost == {"n-1"}  # still known, though no task is there any more


def test_what_runs_on_a_node_that_is_closed_goes_on_there(tmp_path: Path) -> None:
    watch = made(tmp_path, read(tmp_path))
    engine = watch.run.engine = QueueEngine(closed={"n-1"}, behave=lambda job: FakeRun(polls=0))
    before = orders(watch)
    for _ in watch.follow(lambda seconds: None):
        pass
    assert orders(watch) == before
    assert {each.status.state for each in watch.run.tasks.values()} == {"succeeded"}
    assert len(engine._entries) == len(before)


def test_what_waits_for_a_node_that_is_closed_goes_elsewhere_if_it_stays_closed(tmp_path: Path) -> None:
    watch = made(tmp_path, read(tmp_path))
    engine = watch.run.engine = QueueEngine(closed={"n-1"})
    waiting = [name for name, order in orders(watch).items() if order.places == ("n-1/gpu0",)]
    assert watch._look_for_losses() is False  # once may be a restart of the engine
    assert watch._look_for_losses() is True
    assert all(watch.run.tasks[name].order.places == ("n-0/gpu0",) for name in waiting)
    assert not engine._entries


def test_a_task_that_was_stopped_is_not_planned_anew_with_its_node(tmp_path: Path) -> None:
    watch = made(tmp_path, read(tmp_path))
    engine = watch.run.engine = QueueEngine(behave=lambda job: FakeRun(polls=0))
    watch.run.submit()
    stopped = next(each for each in watch.run.tasks.values() if each.order.job.placements[0].node == "n-1")
    engine.cancel(JobId(stopped.order.job.name))
    watch.run.look()
    engine.down.add("n-1")
    for _ in watch.follow(lambda seconds: None):
        pass
    states = {name: each.status.state for name, each in watch.run.tasks.items()}
    assert states.pop(stopped.task) == "cancelled"
    assert set(states.values()) == {"succeeded"}


def test_a_task_that_fits_on_no_node_that_is_left_is_given_up(tmp_path: Path) -> None:
    pinned = "  - {name: here, speeds: {T4: 1}, steps: 1, nodes: [n-1], command: [run]}\n"
    watch = made(tmp_path, read(tmp_path, TASKS + pinned))
    watch.run.engine = QueueEngine(down={"n-1"})
    for _ in watch.follow(lambda seconds: None):
        pass
    here = watch.run.tasks["here"].status
    assert (here.state, here.reason) == ("failed", "may run on n-1 alone, which the cluster does not have")
    others = {each.status.state for name, each in watch.run.tasks.items() if name != "here"}
    assert others == {"succeeded"}


def test_a_task_without_anything_to_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a has speeds and nothing that could be run"):
        made(tmp_path, read(tmp_path, "tasks:\n  - {name: a, speeds: {T4: 1}, steps: 10}\n"))


@pytest.mark.parametrize(("checkpoint", "left_seconds"), [("", 1000.0), ("checkpoint: 100s, ", 600.0)])
def test_what_was_written_before_a_node_was_lost_is_not_done_again(
    tmp_path: Path, checkpoint: str, left_seconds: float
) -> None:
    """450 seconds after its start of 20 seconds: four checkpoints, and all that came later is done again."""
    words = f"{{name: a, speeds: {{T4: 1}}, steps: 1000, start: 20s, {checkpoint}command: [run]}}"
    watch = made(tmp_path, read(tmp_path, f"tasks: [{words}]"))
    (name,) = watch.run.tasks
    each = watch.run.tasks[name]
    watch.run.tasks[name] = replace(each, status=JobStatus(state=JobState.RUNNING, started_at=1000.0))
    node = each.order.places[0].rpartition("/")[0]
    away = Away(closed=frozenset({node}), lost=frozenset({node}))
    plan = plan_anew(watch.problem, "makespan", watch.run, now_seconds=1470.0, away=away)
    assert plan.value == pytest.approx(20.0 + left_seconds)

"""What tasks took goes into the database, and the next plan goes by it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tonnage.allocate.tasks_file import read_tasks
from tonnage.engines.deploying import Deployments
from tonnage.engines.fake import FakeEngine, FakeRun
from tonnage.planning import plan_for, problem_of
from tonnage.planning.measuring import keep_measurements
from tonnage.planning.orders import orders_of
from tonnage.planning.running import Run
from tonnage.profile.recorder import PREFIX
from tonnage.store.database import open_database

RECORD = {
    "window": {
        "steps": 100,
        "means": {
            "step_seconds": 0.5, "loader_seconds": 0.0, "forward_span_seconds": 0.1,
            "backward_span_seconds": 0.2, "optimizer_span_seconds": 0.05,
        },
        "step_deviation_seconds": 0.01, "cpu_cores_used": 1.0, "cores": 8, "peak_host_bytes": 1 << 30,
        "loader_workers": None, "training": True, "torch": "2.11.0", "python": "3.12.3", "device": "cuda",
        "gpu": "Tesla T4", "gpu_memory_bytes": 15 << 30, "gpu_count": 1, "cuda": "13.0", "reserved_bytes": 1 << 30,
    },
    "whole": {"steps": 110, "seconds": 55.0},
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TONNAGE_DATABASE", str(tmp_path / "measured.db"))
    (tmp_path / "train.py").write_text("print('training')\n")
    (tmp_path / "cluster.yaml").write_text(
        "nodes:\n  - {name: n, gpus: [{model: T4, count: 1}], cpu: {cores: 8}, memory: 64 GiB}\n"
    )
    (tmp_path / "tasks.yaml").write_text(
        "tasks:\n  - {name: a, program: train.py, arguments: [--fast], speeds: {T4: 4}, steps: 100}\n"
        "  - {name: b, program: train.py, speeds: {T4: 4}, steps: 100}\n"
    )
    return tmp_path


def test_a_task_that_ran_is_a_measurement_and_the_next_plan_goes_by_it(folder: Path) -> None:
    file = read_tasks("tasks.yaml")
    problem, _ = problem_of(file, "cluster.yaml")
    assert {task.profiles["T4"].step_seconds for task in problem.tasks} == {0.25}
    plan = plan_for(problem, seconds=0)
    engine = FakeEngine(behave=lambda job: FakeRun(lines=("training", "", PREFIX + json.dumps(RECORD))))
    only = [order for order in orders_of(problem, plan, file, "run-m") if order.task == "a"]
    run = Run([replace(order, waits_for=()) for order in only], engine, engine.Options(), Deployments(folder / "d"))
    run.submit()
    while not run.is_over:
        run.look()
    for _ in range(2):  # asking again adds nothing
        (told,) = keep_measurements(run, problem, file)
        assert (told.task, told.gpu, told.measured_step_seconds) == ("a", "T4", 0.5)
        assert told.error == pytest.approx(-0.5)
    with open_database() as database:
        ((environment, row),) = database.measurements(campaign="plans")
    assert (environment.gpu, row.step_seconds and row.step_seconds.mean) == ("T4", 0.5)
    again = {task.name: task for task in problem_of(file, "cluster.yaml")[0].tasks}
    assert (again["a"].profiles["T4"].step_seconds, again["a"].profiles["T4"].basis) == (0.5, "measured")
    assert again["b"].profiles["T4"].step_seconds == 0.25  # other arguments are another run

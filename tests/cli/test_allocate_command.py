"""`tonnage allocate` as a command."""

import json
from pathlib import Path
from typing import Any

import pytest
from allocating import run, write

CLUSTER = """
nodes:
  - {name: big, gpus: [{model: H200, count: 2}], cpu: {cores: 64}, memory: 1 TiB}
  - {name: desk, count: 2, gpus: [{model: RTX 4090}], cpu: {cores: 16}, memory: 128 GiB}
"""
TASKS = """
tasks:
  - {name: a, speeds: {H200: 10, RTX 4090: 5}, memory: 9 GiB, steps: 36000, count: 4}
  - {name: gang, speeds: {H200: 1}, memory: 60 GiB, steps: 3600, gpus: 2, priority: 2}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path, cluster=CLUSTER, tasks=TASKS)


def answer(folder: Path, *arguments: str) -> dict[str, Any]:
    done = run(folder, "--seconds", "1", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_contract_of_json(folder: Path) -> None:
    plan = answer(folder)
    assert {"objective", "value", "bound", "gap", "assignments", "unplaced", "solver_seconds"} <= plan.keys()
    assert plan["objective"] == "makespan"
    assert plan["bound"] <= plan["value"]
    assert {each["task"] for each in plan["assignments"]} == {"a-0", "a-1", "a-2", "a-3", "gang"}
    assert all(
        {"task", "gpus", "start_seconds", "end_seconds", "reason"} <= each.keys() for each in plan["assignments"]
    )
    gang = next(each for each in plan["assignments"] if each["task"] == "gang")
    assert gang["gpus"] == ["big/gpu0", "big/gpu1"]


@pytest.mark.parametrize("objective", ["makespan", "completion", "deadline", "fairness", "energy", "cost"])
def test_every_objective_has_a_plan(folder: Path, objective: str) -> None:
    assert answer(folder, "--objective", objective)["objective"] == objective


def test_people_see_a_chart_and_reasons(folder: Path) -> None:
    done = run(folder, "--seconds", "0")
    assert done.returncode == 0, done.stderr
    assert "5 tasks on 4 GPUs: makespan" in done.stdout
    assert "█" in done.stdout
    assert "only H200 will do" in done.stdout


def test_one_task_is_explained(folder: Path) -> None:
    done = run(folder, "--seconds", "0", "--why", "gang")
    assert done.returncode == 0, done.stderr
    assert "no speed is given" in done.stdout
    assert "chosen" in done.stdout


def test_an_unknown_task_is_not_explained(folder: Path) -> None:
    done = run(folder, "--seconds", "0", "--why", "gong")
    assert (done.returncode, done.stderr) == (4, "error: there is no task gong\nhint: did you mean gang?\n")


def test_a_page_is_written(folder: Path) -> None:
    assert run(folder, "--seconds", "0", "--html", "plan.html").returncode == 0
    page = (folder / "plan.html").read_text()
    assert page.count("<title>") > 5
    assert "<script" not in page


def test_a_task_that_fits_nowhere_is_told_and_the_rest_is_planned(folder: Path) -> None:
    with (folder / "tasks.yaml").open("a") as file:
        file.write("  - {name: huge, speeds: {H200: 1}, memory: 300 GiB, steps: 10}\n")
    done = run(folder, "--seconds", "0", "--json")
    assert done.returncode == 3
    plan = json.loads(done.stdout)
    assert len(plan["assignments"]) == 5
    assert plan["unplaced"][0]["task"] == "huge"
    assert "needs 300 GiB on a GPU" in plan["unplaced"][0]["reason"]


def test_a_program_that_cannot_be_followed_does_not_stop_the_others(folder: Path) -> None:
    with (folder / "tasks.yaml").open("a") as file:
        file.write("  - {name: gone, program: gone.py, steps: 10}\n")
    done = run(folder, "--seconds", "0")
    assert done.returncode == 3
    assert "not placed: gone: " in done.stderr
    assert "5 tasks on 4 GPUs" in done.stdout


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        (
            "tasks:\n  - {name: a, steps: 10}\n",
            "tasks.yaml:2: tasks[0]: needs a `program`, or `speeds` where they are known",
        ),
        ("tasks:\n  - {name: a, speeds: {H200: 1}}\n", "needs `steps`"),
        ("tasks:\n  - {name: a, speeds: {H200: -1}, steps: 10}\n", "tasks[0].speeds"),
        ("tasks:\n  - {name: a, speeds: {H200: .nan}, steps: 10}\n", "tasks[0].speeds"),
        ("tasks:\n  - {name: a, speeds: {H2000: 1}, steps: 10}\n", "H2000"),
        ("tasks:\n  - {name: a, speeds: {H200: 1}, steps: 0}\n", "tasks[0].steps"),
        (
            "tasks:\n  - {name: a, speeds: {H200: 1}, steps: 1}\n  - {name: a, speeds: {H200: 1}, steps: 1}\n",
            "is taken",
        ),
        ("tasks:\n  - {name: a, speeds: {H200: 1}, steps: 1, after: [b]}\n", "a waits for b, which is no task"),
        ("tasks:\n  - {name: a, speeds: {H200: 1}, steps: 1, after: [a]}\n", "in a circle: a -> a"),
        (
            "tasks:\n  - {name: a, speeds: {H200: 1}, steps: 1, pin: [x/gpu0], gpus: 2}\n",
            "names 1 GPUs, the task wants 2",
        ),
        ("tasks: []\n", "must not be empty"),
        ("tasks:\n  - {name: a, speed: {H200: 1}, steps: 1}\n", "speed"),
    ],
)
def test_bad_tasks_are_refused_in_one_sentence(folder: Path, tasks: str, message: str) -> None:
    (folder / "tasks.yaml").write_text(tasks)
    done = run(folder, "--json")
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert message in done.stderr
    assert len(done.stderr.splitlines()) <= 2
    assert done.stdout == ""


def test_a_cluster_without_gpus_is_refused(folder: Path) -> None:
    (folder / "cluster.yaml").write_text("nodes:\n  - {name: big, cpu: {cores: 64}, memory: 1 TiB}\n")
    done = run(folder)
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, "error: the cluster cluster has no GPUs")


def test_missing_files_and_unknown_objectives_are_told(folder: Path) -> None:
    assert run(folder, "--objective", "speed").returncode == 2
    (folder / "tasks.yaml").unlink()
    assert run(folder).returncode == 4


def test_tasks_are_played_as_they_come(folder: Path) -> None:
    found = answer(folder, "--simulate", "--objective", "completion")
    assert (found["policy"], found["jobs"], found["unplaced"]) == ("completion", 5, [])
    assert found["makespan_seconds"] >= 3600
    assert "p99" in run(folder, "--simulate").stdout
    assert run(folder, "--simulate", "--html", "plan.html").returncode == 2

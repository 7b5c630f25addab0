"""`tonnage allocate --why`, and what is noted beside a plan."""

import json
from pathlib import Path

import pytest
from allocating import run, write

CLUSTER = """
nodes:
  - {name: big, gpus: [{model: H200, count: 2}], cpu: {cores: 64}, memory: 1 TiB}
  - {name: desk, gpus: [{model: RTX 4090}], cpu: {cores: 16}, memory: 128 GiB, price_usd_hour: 1}
"""
TASKS = """
tasks:
  - {name: a, speeds: {H200: 10, RTX 4090: 5}, memory: 9 GiB, steps: 36000, count: 2, watts: 300}
  - {name: b, speeds: {H200: 1}, memory: 200 GiB, steps: 3600}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path, cluster=CLUSTER, tasks=TASKS)


def test_the_alternatives_of_a_task_are_one_document(folder: Path) -> None:
    done = run(folder, "--seconds", "0", "--why", "a-0", "--json")
    assert done.returncode == 3, done.stderr  # the other task is not placed
    told = json.loads(done.stdout)
    assert (told["task"], told["reason"]) == ("a-0", "fastest on H200 (60 min)")
    h200, desk = told["alternatives"]
    assert (h200["gpu"], h200["chosen"], h200["start_seconds"], h200["end_seconds"]) == ("H200", True, 0.0, 3600.0)
    assert (desk["gpu"], desk["chosen"], desk["alone_seconds"], desk["end_seconds"]) == (
        "RTX 4090",
        False,
        7200.0,
        7200.0,
    )
    assert (desk["profile"]["step_seconds"], desk["profile"]["basis"]) == (0.2, "given")


def test_a_task_without_a_place_is_explained_as_well(folder: Path) -> None:
    told = json.loads(run(folder, "--seconds", "0", "--why", "b", "--json").stdout)
    assert told["reason"].startswith("needs 200 GiB on a GPU")
    assert [each["verdict"] for each in told["alternatives"]] == [
        "its memory does not hold the task",
        "no speed is given",
    ]
    assert [each["start_seconds"] for each in told["alternatives"]] == [None, None]


def test_explaining_runs_nothing(folder: Path) -> None:
    done = run(folder, "--why", "a-0", "--engine", "local", "--submit")
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, "error: --why explains a plan and runs nothing")


@pytest.mark.parametrize(
    ("objective", "note"),
    [
        ("energy", "note: no `watts` are given for b: that energy is counted as none"),
        ("cost", "note: no price is known of H200: it is counted as free; `price_usd_hour` of the node tells it"),
        ("deadline", "note: no task has a `deadline`, so every plan is as good"),
    ],
)
def test_what_a_plan_does_not_know_is_noted(folder: Path, objective: str, note: str) -> None:
    done = run(folder, "--seconds", "0", "--objective", objective)
    assert note in done.stderr.splitlines()
    assert "note" not in run(folder, "--seconds", "0").stderr

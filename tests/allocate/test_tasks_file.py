"""What a tasks file may say, and how it is told what it may not."""

from pathlib import Path

import pytest

from tonnage.allocate.tasks_file import read_tasks
from tonnage.allocate.tasks_models import TasksFile
from tonnage.errors import InvalidFile

GIVEN = {"name": "a", "speeds": "{H200: 1, RTX 4090: 0.5}", "memory": "9 GiB", "steps": "100"}


def read(folder: Path, rest: str = "", **fields: str | None) -> TasksFile:
    told = {name: value for name, value in {**GIVEN, **fields}.items() if value is not None}
    path = folder / "tasks.yaml"
    path.write_text("tasks:\n  - {" + ", ".join(f"{name}: {value}" for name, value in told.items()) + "}\n" + rest)
    return read_tasks(path)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"memory": "1 GHz"}, "tasks[0].memory: must be a size with its unit, such as 512 GiB, not '1 GHz'"),
        ({"memory": "{H200: 5}"}, "tasks[0].memory.H200: must be a size with its unit, such as 512 GiB, not 5"),
        ({"memory": "0 GiB"}, "tasks[0].memory: must be more than 0, not '0 GiB'"),
        ({"memory": "{H200: 9 GiB}"}, "tasks[0].memory: says nothing of RTX 4090, which has a speed"),
        ({"watts": "{H200: 500}"}, "tasks[0].watts: says nothing of RTX 4090, which has a speed"),
        ({"watts": "-100"}, "tasks[0].watts: must be at least 0, not -100"),
        ({"watts": ".nan"}, "tasks[0].watts: must be at least 0, not nan"),
        ({"watts": "many"}, "tasks[0].watts: must be a number, not 'many'"),
        ({"speeds": "{}"}, "tasks[0].speeds: must not be empty"),
        ({"speeds": "{H200: -1}"}, "tasks[0].speeds.H200: must be at least 1e-09, not -1"),
        ({"speeds": "{H200: .inf}"}, "tasks[0].speeds.H200: must be at most 1000000000, not inf"),
        ({"speeds": "{H200: 1, h200: 2}"}, "tasks[0].speeds.h200: is H200, which is there already"),
        ({"speeds": "{H200: .nan}"}, "tasks[0].speeds.H200: must be at least 1e-09, not nan"),
        ({"steps": ".nan"}, "tasks[0].steps: must be more than 0, not nan"),
        ({"steps": "0"}, "tasks[0].steps: must be more than 0, not 0"),
        ({"steps": "1.0e+308"}, "tasks[0].steps: must be at most 1000000000000, not 1e+308"),
        ({"steps": "1.0e-5"}, "tasks[0].steps: last 1e-05 s on H200; a run has from 0.01 to 1e+09 s"),
        ({"steps": "1.0e+12"}, "tasks[0].steps: last 1e+12 s on H200; a run has from 0.01 to 1e+09 s"),
        ({"priority": "1.0e+300"}, "tasks[0].priority: must be at most 1000000.0, not 1e+300"),
        ({"release": "100000000 days"}, "tasks[0].release: must be at most 1000000000, not '100000000 days'"),
        ({"pin": "[n/gpu0, n/gpu0]", "gpus": "2"}, "tasks[0].pin: names n/gpu0 twice"),
        ({"epochs": "3"}, "tasks[0].epochs: stand instead of `steps`, and those are told as well"),
        ({"program": "a.py", "steps": None, "epochs": "3"}, "tasks[0]: needs `steps`, where it has `speeds`"),
    ],
)
def test_what_cannot_be_is_told_with_line_and_field(tmp_path: Path, fields: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidFile) as caught:
        read(tmp_path, **fields)
    assert caught.value.message == f"{tmp_path / 'tasks.yaml'}:2: {words}"


@pytest.mark.parametrize("risk", ["0", "1", "1.0e-17", ".nan"])
def test_a_risk_that_no_memory_could_keep_is_refused(tmp_path: Path, risk: str) -> None:
    with pytest.raises(InvalidFile, match=r":3: risk: must be at (least 1e-09|most 0.5)"):
        read(tmp_path, f"risk: {risk}\n")


def test_the_name_of_a_group_stands_for_all_its_tasks(tmp_path: Path) -> None:
    file = read(tmp_path, "  - {name: b, speeds: {H200: 1}, steps: 1, after: [a-1, a]}\n", count="3")
    assert file.tasks[1].after == ["a-1", "a-0", "a-2"]


def test_a_size_may_stand_for_all_gpus_or_for_each(tmp_path: Path) -> None:
    assert read(tmp_path).tasks[0].memory == 9 << 30
    each = read(tmp_path, memory="{h200: 9 GiB, RTX 4090: 8 GiB}").tasks[0].memory
    assert each == {"H200": 9 << 30, "RTX 4090": 8 << 30}


def test_a_task_whose_memory_is_not_told_shares_no_gpu(tmp_path: Path) -> None:
    assert read(tmp_path).tasks[0].share
    assert not read(tmp_path, memory=None).tasks[0].share


def test_numbers_may_have_an_exponent(tmp_path: Path) -> None:
    file = read(tmp_path, "risk: 1e-6\n", steps="2e5", watts="{H200: 1e2, RTX 4090: 50}")
    assert (file.risk, file.tasks[0].steps, file.tasks[0].watts) == (1e-6, 2e5, {"H200": 100.0, "RTX 4090": 50.0})

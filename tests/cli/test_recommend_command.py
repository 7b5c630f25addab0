"""`tonnage recommend` as a command, on a small trace."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tonnage.program.trace import Category, Operator, Origin, Phase, TensorSpec
from tonnage.program.trace_file import write_trace
from tonnage.program.virtual_gpu.recorder import Recorder

MATRIX = TensorSpec((2048, 2048), "float32")
PRODUCT = Operator("aten::mm", (MATRIX, MATRIX), (MATRIX,))
MIB = 1 << 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Traces of a program with 1000 steps in an epoch, of one that does not say, of inference, and of one too large."""
    place = tmp_path_factory.mktemp("recommend")
    origin = Origin(program="train.py", steps=3, batch=32, epoch_steps=1000, warnings=("mind the gap",))
    for name, weights, changes in (
        ("run", 2, {}),
        ("endless", 64, {"epoch_steps": 0}),
        ("no-batch", 64, {"epoch_steps": 0, "batch": None}),
        ("inference", 64, {"mode": "inference"}),
        ("huge", 1 << 20, {}),
    ):  # fmt: skip
        recorder = Recorder()
        recorder.operators.append(PRODUCT)
        recorder.tag(recorder.allocate(weights * MIB, 0, Phase.SETUP), Category.PARAMETERS)
        for _ in range(3):
            recorder.call(0, 0, Phase.FORWARD)
            if name != "inference":
                gradient = recorder.allocate(weights * MIB, 0, Phase.BACKWARD)
                recorder.tag(gradient, Category.GRADIENTS)
                recorder.call(0, 0, Phase.BACKWARD)
                recorder.free(gradient)
            recorder.end_step()
        write_trace(recorder.trace(replace(origin, **changes)), place / f"{name}.trace")  # type: ignore[arg-type]
    return place


def recommend(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TONNAGE_TIME_MODEL": "", "XDG_DATA_HOME": str(folder)}
    return subprocess.run(
        [sys.executable, "-m", "tonnage.cli.main", "recommend", *arguments], cwd=folder, capture_output=True, text=True,
        check=False, timeout=120, stdin=subprocess.DEVNULL, env=environment,
    )  # fmt: skip


def answer(folder: Path, *arguments: str) -> dict[str, Any]:
    done = recommend(folder, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.mark.parametrize(
    ("arguments", "code", "words", "hint"),
    [
        (["missing.trace"], 4, "there is no file missing.trace", ""),
        (["run.trace", "--gpu", "H20O"], 4, "unknown GPU 'H20O'", "did you mean H200?"),
        (["run.trace", "--deadline", "soon"], 2, "--deadline must be a time with its unit", "units are s, min, h and d"),
        (["run.trace", "--deadline", ""], 2, "--deadline must be a time with its unit", "units are"),
        (["run.trace", "--deadline", "-2d"], 2, "--deadline must be a time with its unit", "units are"),
        (["run.trace", "--deadline", "0d"], 2, "--deadline must be more than 0, not '0d'", "units are"),
        (["run.trace", "--max-cost", "-3"], 2, "a budget of -3 US dollars is impossible", "greater than 0"),
        (["run.trace", "--max-cost", "nan"], 2, "a budget of nan US dollars is impossible", "greater than 0"),
        (["run.trace", "--max-energy", "0"], 2, "a limit of 0 kilowatt-hours is impossible", "greater than 0"),
        (["run.trace", "--epochs", "0"], 2, "a run of 0 epochs is impossible", "greater than 0"),
        (["run.trace", "--epochs", "inf"], 2, "a run of inf epochs is impossible", "greater than 0"),
        (["run.trace", "--max-gpus", "0"], 2, "--max-gpus", "--help"),
        (["run.trace", "--max-gpus", "5000"], 2, "5000 GPUs are impossible", "from 1 to 4,096"),
        (["run.trace", "--shard", "zero9"], 2, "no way to share the work is called zero9", "zero3"),
        (["endless.trace"], 2, "how many steps train.py takes is not known", "--steps N"),
        (["no-batch.trace", "--samples", "9"], 2, "the batch size of train.py was not found", "--batch-arg"),
        (["run.trace", "--deadline", "1s", "-g", "L4"], 3, "time binds: the nearest is L4", "with a deadline of"),
        (["run.trace", "--max-cost", "0.0001", "-g", "L4"], 3, "cost binds", "with a budget of $"),
        (["run.trace", "--max-cost", "9", "-g", "H200"], 3, "its price is not known", "no limit on cost"),
        (["run.trace", "--max-energy", "1e-9", "-g", "L4"], 3, "energy binds", "it would do"),
        (["huge.trace"], 3, "memory binds", "try a smaller batch"),
    ],
)  # fmt: skip
def test_a_request_that_cannot_be_met_is_one_sentence(
    folder: Path, arguments: list[str], code: int, words: str, hint: str
) -> None:
    done = recommend(folder, *arguments)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    first, *rest = done.stderr.splitlines()
    assert first.startswith("error: ")
    assert words in first
    assert len(rest) <= 1
    assert hint in "".join(rest)


@pytest.mark.parametrize("deadline", ["2d", "2 days", "1d 24h", "48h"])
def test_a_deadline_may_be_in_days(folder: Path, deadline: str) -> None:
    limits = answer(folder, "run.trace", "-g", "L4", "--deadline", deadline)["limits"]
    assert limits["deadline_seconds"] == 2 * 86400


def test_the_fewest_gpus_that_keep_the_deadline_are_chosen(folder: Path) -> None:
    alone = answer(folder, "run.trace", "-g", "L4")["chosen"]["run_seconds"]["high"]
    found = answer(folder, "run.trace", "-g", "L4", "--max-gpus", "8", "--deadline", f"{0.6 * alone:.6f}s")
    assert (found["chosen"]["gpu"], found["chosen"]["gpu_count"]) == ("L4", 2)
    assert found["chosen"]["run_seconds"]["high"] <= 0.6 * alone
    assert [c["gpu_count"] for c in found["rejected"]] == [1]
    assert "time: needs up to" in found["rejected"][0]["reasons"][0]


def test_numbers_of_gpus_are_powers_of_two_and_the_most(folder: Path) -> None:
    found = answer(folder, "run.trace", "-g", "L4", "--max-gpus", "6")
    assert [c["gpu_count"] for c in (found["chosen"], *found["alternatives"])] == [1, 2, 4, 6]


def test_the_run_is_as_long_as_asked_for(folder: Path) -> None:
    seconds = [
        answer(folder, "run.trace", "-g", "L4", *length)["chosen"]["run_seconds"]["value"]
        for length in ([], ["--epochs", "3"], ["--steps", "500"], ["--samples", "64000"])
    ]
    assert [value / seconds[0] for value in seconds] == pytest.approx([1, 3, 0.5, 2])


def test_copies_of_an_inference_program_divide_the_run(folder: Path) -> None:
    found = answer(folder, "inference.trace", "-g", "L4", "--max-gpus", "2")
    one, two = found["chosen"]["run_seconds"]["value"], found["alternatives"][0]["run_seconds"]["value"]
    assert two == pytest.approx(one / 2)


def test_the_document_says_what_was_asked(folder: Path) -> None:
    found = answer(folder, "run.trace", "-g", "L4", "--deadline", "1h", "--max-energy", "2")
    assert (found["program"], found["warnings"]) == ("train.py", ["mind the gap"])
    assert found["limits"] == {
        "steps": 1000, "deadline_seconds": 3600, "most_gpus": 1, "most_usd": None, "most_joules": 7.2e6,
    }  # fmt: skip
    assert found["chosen"]["estimate"]["gpu"] == "L4"


def test_the_table_names_what_keeps_the_promise_and_what_does_not(folder: Path) -> None:
    done = recommend(folder, "run.trace", "--deadline", "10s", "--max-gpus", "2")
    assert done.returncode == 0
    assert "train.py  1,000 steps of one GPU" in done.stdout
    assert "keeps the promise" in done.stdout
    assert "does not" in done.stdout
    assert "more; --json lists all" in done.stdout
    assert done.stderr == "warning: mind the gap\n"
    assert "\x1b" not in done.stdout

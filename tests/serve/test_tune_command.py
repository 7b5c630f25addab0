"""`tonnage serve tune` with real models, briefly; and what it says of what cannot be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from onnx import TensorProto
from page_rig import running, save_caffe, save_onnx, save_rows

BRIEF = ("--seconds", "0.2", "--instances", "1,2", "--batch", "1,4")
COMMAND = [sys.executable, "-m", "tonnage", "serve", "tune"]


def tune(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"NO_COLOR": "1", "COLUMNS": "160"}
    command = [*COMMAND, str(folder), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, env=environment)


@pytest.mark.slow
def test_the_best_is_written_and_served(tmp_path: Path) -> None:
    save_rows(tmp_path)
    (tmp_path / "rows" / "config.pbtxt").write_text("max_batch_size: 16\n")
    ended = tune(tmp_path, *BRIEF, "--json")
    assert ended.returncode == 0, ended.stderr
    (told,) = json.loads(ended.stdout)["models"]
    assert [(each["instances"], each["batch"]) for each in told["trials"]] == [(1, 1), (1, 4), (2, 1), (2, 4)]
    assert all(each["rows_second"] > 0 and not each["problem"] for each in told["trials"])
    assert (tmp_path / "rows" / "config.pbtxt.before").read_text() == "max_batch_size: 16\n"
    best = told["best"]
    with running(tmp_path) as server:
        served = server.get("/v2/models/rows/config")
    assert served["instance_group"][0]["count"] == best["instances"]
    assert served["max_batch_size"] == (4 if best["batch"] == 4 else 16)
    assert ("dynamic_batching" in served) == (best["batch"] == 4)


@pytest.mark.slow
def test_a_model_without_batches_is_tried_without(tmp_path: Path) -> None:
    save_onnx(tmp_path / "fixed" / "1", "Relu", TensorProto.FLOAT, [2, 3])
    ended = tune(tmp_path, "--seconds", "0.2", "--instances", "1", "--batch", "1,4", "--dry-run")
    assert ended.returncode == 0, ended.stderr
    assert "holds no batch" in ended.stdout
    assert "best" in ended.stdout
    assert [each.name for each in (tmp_path / "fixed").iterdir()] == ["1"]


@pytest.mark.slow
def test_a_caffe_network_of_any_size_needs_one(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    save_caffe(tmp_path / "shares" / "1")
    text = 'input { name: "data" data_type: TYPE_FP32 dims: [1, 3, -1, -1] }'
    (tmp_path / "shares" / "config.pbtxt").write_text(text)
    brief = ("--seconds", "0.2", "--instances", "1", "--batch", "1")
    ended = tune(tmp_path, *brief)
    assert ended.returncode == 2
    assert "hint: say which: --shape data=1,3,N,N, with numbers" in ended.stderr
    ended = tune(tmp_path, *brief, "--shape", "data=1,3,20,30")
    assert ended.returncode == 0, ended.stderr


@pytest.mark.slow
def test_one_model_that_fails_leaves_the_others(tmp_path: Path) -> None:
    save_rows(tmp_path)
    (tmp_path / "broken" / "1").mkdir(parents=True)
    (tmp_path / "broken" / "1" / "model.onnx").write_bytes(b"no model")
    ended = tune(tmp_path, "--seconds", "0.2", "--instances", "1", "--batch", "1", "--dry-run")
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: broken:")
    assert "rows/s" in ended.stdout


@pytest.mark.slow
def test_nothing_is_written_where_nothing_is_quick_enough(tmp_path: Path) -> None:
    save_rows(tmp_path)
    ended = tune(tmp_path, "--seconds", "0.2", "--instances", "1", "--batch", "1", "--p99", "1ns")
    assert ended.returncode == 3
    assert "the quickest needs" in ended.stderr
    assert [each.name for each in (tmp_path / "rows").iterdir()] == ["1"]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_one_leaves_no_process(tmp_path: Path, number: int, code: int) -> None:
    save_rows(tmp_path)
    command = [*COMMAND, str(tmp_path), "--seconds", "60", "--instances", "2", "--batch", "1"]
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a run in the background ignores it, and so would this
    try:
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        started = instances(process.pid, 2)
        process.send_signal(number)
        _, told = process.communicate(timeout=60)
    assert process.returncode == code
    assert "Traceback" not in told
    _, alive = psutil.wait_procs(started, timeout=10)
    assert alive == []
    assert [each.name for each in (tmp_path / "rows").iterdir()] == ["1"]


def instances(pid: int, count: int) -> list[psutil.Process]:
    """As soon as there are so many."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = [each for each in psutil.Process(pid).children(recursive=True) if is_instance(each)]
        if len(found) >= count:
            return found
        time.sleep(0.1)
    raise AssertionError(f"there are no {count} instances after a minute")


def is_instance(process: psutil.Process) -> bool:
    try:
        return any("tonnage.serve" in word for word in process.cmdline())
    except psutil.Error:
        return False


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (["--instances", "0"], 2, "error: --instances 0 is no list of numbers from 1 to 256"),
        (["--batch", "x"], 2, "error: --batch x is no list of numbers from 1 to 256"),
        (["--shape", "3"], 2, "error: --shape 3 is no name with sizes"),
        (["--p99", "soon"], 2, "error: --p99 soon: "),
        (["--device", "tpu"], 2, "error: --device tpu is no device"),
        (["--model", "nobody"], 4, "has no model nobody"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, options: list[str], code: int, told: str) -> None:
    (tmp_path / "rows" / "1").mkdir(parents=True)
    ended = tune(tmp_path, *options)
    assert ended.returncode == code
    assert told in ended.stderr
    assert "hint: " in ended.stderr
    assert "Traceback" not in ended.stderr

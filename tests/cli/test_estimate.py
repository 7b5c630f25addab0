"""`tonnage estimate` as a command: a process of its own, its exit code, and what it says where."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import psutil
import pytest

from tonnage.program.trace import Origin, Phase
from tonnage.program.trace_file import dump_trace, read_trace, write_trace
from tonnage.program.virtual_gpu.recorder import Recorder

MAIN = [sys.executable, "-m", "tonnage.cli.main"]
TRAINING = """
import torch
from torch import nn
model = nn.Linear(64, 32).cuda()
optimizer = torch.optim.Adam(model.parameters())
BATCH_SIZE = 16
for step in range(10 ** 9):
    optimizer.zero_grad()
    model(torch.randn(BATCH_SIZE, 64).cuda()).sum().backward()
    optimizer.step()
"""
MODEL = """
import torch
from torch import nn
model = nn.Linear(256, 256).cuda()
y = model(torch.randn(64, 256, device="cuda"))
"""


def tonnage(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MAIN, *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=120,
        stdin=subprocess.DEVNULL, env={**os.environ, **environment},
    )  # fmt: skip


def write(folder: Path, text: str, name: str = "train.py") -> str:
    (folder / name).write_text(dedent(text))
    return name


def write_small_trace(folder: Path, block_bytes: int = 1024, name: str = "run.trace") -> str:
    recorder = Recorder()
    recorder.allocate(block_bytes, 0, Phase.SETUP)
    recorder.end_step()
    write_trace(recorder.trace(Origin(program="train.py", steps=1)), folder / name)
    return name


def is_one_sentence(done: subprocess.CompletedProcess[str], code: int, *words: str, hint: bool | None = None) -> None:
    """An error, a hint perhaps, nothing else; no traceback, nothing on stdout."""
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    lines = done.stderr.splitlines()
    assert lines[0].startswith("error: ")
    assert len(lines) <= 2, done.stderr
    assert all(line.startswith("hint: ") for line in lines[1:])
    assert all(word in lines[0] for word in words), lines[0]
    assert hint is None or hint == (len(lines) == 2), done.stderr


# -- requests that are wrong in themselves; nothing is captured for them --------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("requests")
    write(place, TRAINING)
    write_small_trace(place)
    (place / "broken.trace").write_bytes((place / "run.trace").read_bytes()[:200])
    (place / "words.trace").write_text("these are words")
    (place / "net.prototxt").write_text('name: "net"')
    (place / "folder").mkdir()
    return place


@pytest.mark.parametrize(
    ("arguments", "code", "words", "hint"),
    [
        (["missing.py"], 4, "there is no file missing.py", True),
        (["missing.trace"], 4, "there is no file missing.trace", None),
        (["missing.py:make"], 4, "there is no file missing.py", None),
        (["folder"], 2, "folder is a folder", True),
        (["train.py", "--gpu", "H20O"], 4, "unknown GPU 'H20O'", True),
        (["train.py", "--gpu", ""], 4, "unknown GPU", None),
        (["train.py", "--batch", "0"], 2, "a batch of 0 is impossible", True),
        (["train.py", "--batch", "-8"], 2, "a batch of -8 is impossible", True),
        (["train.py", "--batch", "8,99999999999"], 2, "a batch of 99999999999 is impossible", True),
        (["train.py", "--batch", "many"], 2, "--batch many is not a list of whole numbers", True),
        (["train.py", "--batch", "8.5"], 2, "--batch 8.5 is not a list of whole numbers", True),
        (["train.py", "--gpus", "0"], 2, "0 GPUs are impossible", True),
        (["train.py", "--gpus", "1,x"], 2, "--gpus 1,x is not a list of whole numbers", True),
        (["train.py", "--gpus", "5000"], 2, "5000 GPUs are impossible", True),
        (["train.py", "--shard", "zero9"], 2, "no way to share the work is called zero9", True),
        (["train.py", "--samples", "-1"], 2, "--samples", True),
        (["run.trace", "--samples", "100"], 2, "the batch size of train.py was not found", True),
        (["train.py", "--steps", "0"], 2, "--steps", True),
        (["train.py", "--steps", "few"], 2, "--steps", True),
        (["train.py", "--timeout", "0"], 2, "--timeout", True),
        (["train.py", "--size", "batch"], 2, "--size batch is not NAME=N", True),
        (["train.py", "--bogus"], 2, "No such option: --bogus", True),
        (["train.py", "--html", "nowhere/page.html"], 2, "there is no folder nowhere", None),
        (["train.py", "--save-trace", "nowhere/run.trace"], 2, "there is no folder nowhere", None),
        (["net.prototxt"], 2, "net.prototxt has no layers that compute anything", True),
        (["words.trace"], 2, "words.trace is not a readable trace", True),
        (["broken.trace"], 2, "broken.trace is not a readable trace", True),
        (["run.trace", "--batch", "8"], 2, "a trace has one batch size", None),
        (["run.trace", "--find-max-batch"], 2, "a trace has one batch size", None),
        (["run.trace", "extra"], 2, "run.trace takes no arguments", None),
        ([], 2, "Missing argument", True),
    ],
)
def test_a_wrong_request_is_one_sentence(
    folder: Path, arguments: list[str], code: int, words: str, hint: bool | None
) -> None:
    is_one_sentence(tonnage(folder, "estimate", *arguments), code, words, hint=hint)


def test_the_hint_names_the_nearest_gpu_and_the_scripts_at_hand(folder: Path) -> None:
    assert "did you mean H200?" in tonnage(folder, "estimate", "train.py", "--gpu", "H20O").stderr
    assert "hint: this folder has: train.py" in tonnage(folder, "estimate", "trian.py").stderr


def test_a_trace_of_a_newer_tonnage_asks_for_an_upgrade(tmp_path: Path) -> None:
    import zipfile

    write_small_trace(tmp_path)
    with zipfile.ZipFile(tmp_path / "run.trace") as old, zipfile.ZipFile(tmp_path / "new.trace", "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name).replace(b'"version":2', b'"version":7'))
    is_one_sentence(tonnage(tmp_path, "estimate", "new.trace"), 2, "newer Tonnage (trace version 7", hint=True)


# -- scripts that cannot be followed --------------------------------------------------------------------------------------

FAILURES = {
    "syntax error": ("import torch\nx = (1\ny = 2\n", "train.py:2: '(' was never closed"),
    "before the first step": ('import torch\nraise ValueError("no good")\n', "train.py:2: ValueError: no good"),
    "inside the first step": (
        "import torch\nmodel = torch.nn.Linear(64, 32).cuda()\nmodel(torch.ones(4, 65).cuda())\n",
        "train.py:3: RuntimeError",
    ),
    "no GPU": ("import torch\nprint(torch.ones(3).sum())\n", "train.py never used the GPU"),
    "missing module": ("import torch\nimport no_such_package\n", "train.py:2: No module named 'no_such_package'"),
    "its own arguments": (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--data', required=True)\np.parse_args()\n",
        "train.py exited with status 2 before its first step",
    ),
    "missing data": ("import torch\nopen('no_such_file')\n", "train.py:2:"),
    "CUDA extension": (
        "import torch\nfrom torch.utils.cpp_extension import load\nfast = load('fast', sources=['fast.cu'])\n",
        "train.py:3: the custom CUDA extension 'fast' cannot run on the virtual GPU",
    ),
    "custom operator": (
        """
        import torch
        @torch.library.custom_op("mine::twice", mutates_args=(), device_types="cuda")
        def twice(x: torch.Tensor) -> torch.Tensor:
            return x * 2
        twice(torch.ones(5, device="cuda"))
        """,
        "the operator mine::twice exists only for a real GPU",
    ),
    "operator of a library": (
        """
        import torch
        library = torch.library.Library("mine", "DEF")
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CUDA")
        torch.ops.mine.twice(torch.ones(5, device="cuda"))
        """,
        "train.py:6: the operator mine::twice exists only for a real GPU",
    ),
    "a size from a value": (
        MODEL + "torch.zeros((int(y.sum()), 10), device='cuda')\n",
        "train.py:6: a size or a loop count is computed from values on the GPU",
    ),
    "a loop count from a value": (
        MODEL + "print(int(y.sum()))\nfor _ in range(int(y.sum().item())):\n    model(y)\n",
        "train.py:7: a size or a loop count is computed from values on the GPU",
    ),
}


@pytest.mark.parametrize("kind", FAILURES)
def test_a_script_that_cannot_be_followed_is_one_sentence_with_the_users_line(tmp_path: Path, kind: str) -> None:
    text, words = FAILURES[kind]
    is_one_sentence(tonnage(tmp_path, "estimate", write(tmp_path, text)), 1, words, hint=True)


def test_without_torch_it_says_what_to_install(tmp_path: Path) -> None:
    write(tmp_path, TRAINING)
    program = """
import importlib.util, sys
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "torch" else find(name, *rest)
sys.argv = ["tonnage", "estimate", "train.py"]
from tonnage.cli.main import main
main()
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    is_one_sentence(done, 1, "needs torch, which is not installed here", hint=True)


def test_a_branch_on_values_inside_the_model_is_never_silent(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        import torch
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(256, 256)
            def forward(self, x):
                y = self.layer(x)
                return self.layer(y) if y.sum() > 0 else y
        Net().cuda()(torch.randn(64, 256, device="cuda"))
        """,
    )
    assert "depends on values computed on the GPU" in tonnage(tmp_path, "estimate", "train.py", "-g", "T4").stderr


# -- a process that is told to stop ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sent", "code", "said"), [(signal.SIGINT, 130, "interrupted\n"), (signal.SIGTERM, 143, "")])
def test_when_told_to_stop_it_takes_the_captured_program_along(
    tmp_path: Path, sent: signal.Signals, code: int, said: str
) -> None:
    write(tmp_path, "open('started', 'w')\nimport time, torch\nx = torch.ones(3).cuda()\ntime.sleep(1000)\n")
    process = subprocess.Popen(
        [*MAIN, "estimate", "train.py"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # shells make background jobs ignore it
    )  # fmt: skip
    child = wait_for_child(process.pid)
    process.send_signal(sent)
    output, errors = process.communicate(timeout=30)
    assert (process.returncode, output, errors) == (code, "", said)
    assert not child.is_running()


def wait_for_child(pid: int) -> psutil.Process:
    for _ in range(300):
        children = psutil.Process(pid).children()
        if children and "virtual_gpu" in " ".join(children[0].cmdline()):
            return children[0]
        time.sleep(0.05)
    raise AssertionError("no child was started")


# -- answers --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    place = tmp_path_factory.mktemp("answers")
    write(place, TRAINING)
    done = tonnage(
        place,
        "estimate",
        "train.py",
        "-g",
        "H200",
        "-g",
        "T4",
        "--json",
        "--save-trace",
        "run.trace",
        "--html",
        "a.html",
    )
    assert (done.returncode, done.stderr) == (0, "report: a.html\n")
    return place, json.loads(done.stdout)


def test_json_keeps_its_contract(answered: tuple[Path, dict[str, Any]]) -> None:
    _, report = answered
    assert {"program", "steps_traced", "estimates", "warnings"} <= report.keys()
    assert (report["program"], report["steps_traced"], report["batch"]) == ("train.py", 4, 16)
    assert [e["gpu"] for e in report["estimates"]] == ["H200", "T4"]
    for estimate in report["estimates"]:
        assert type(estimate["fits"]) is bool
        assert estimate["basis"] in ("measured", "calibrated", "specification")
        for name in ("peak_allocated_bytes", "peak_reserved_bytes", "device_bytes"):
            bounds = estimate[name]
            assert 0 <= bounds["low"] <= bounds["value"] <= bounds["high"]
        assert estimate["peak_allocated_bytes"]["value"] <= estimate["peak_reserved_bytes"]["value"]
        assert all(type(size) is int for size in estimate["categories"].values())
        assert (estimate["storage_bytes"], estimate["h2d_bytes_step"], estimate["d2h_bytes_step"]) == (
            0,
            16 * 64 * 4,
            0,
        )


TIMES = (
    "step_seconds", "forward_seconds", "backward_seconds", "optimizer_seconds", "h2d_seconds", "d2h_seconds", "power_watts",
    "energy_joules_step", "epoch_seconds", "cost_usd_hour",
)  # fmt: skip


def test_json_tells_time_power_and_cost(answered: tuple[Path, dict[str, Any]]) -> None:
    _, report = answered
    assert report["epoch_steps"] is None
    for estimate in report["estimates"]:
        assert (estimate["gpu_count"], estimate["epoch_seconds"]) == (1, None)
        assert estimate["time_basis"] in ("measured", "calibrated", "specification")
        assert estimate["bound_by"] in ("GPU", "host", "copies", "network")
        for name in set(TIMES) - {"epoch_seconds", "cost_usd_hour"}:
            assert list(estimate[name]) == ["value", "low", "high"]
            assert 0 <= estimate[name]["low"] <= estimate[name]["value"] <= estimate[name]["high"]
    assert report["estimates"][0]["cost_usd_hour"] is None
    assert report["estimates"][1]["cost_usd_hour"]["value"] > 0


def test_phases_add_up_to_the_step(answered: tuple[Path, dict[str, Any]]) -> None:
    for estimate in answered[1]["estimates"]:
        parts = sum(estimate[name]["value"] for name in TIMES[1:6])
        assert parts == pytest.approx(estimate["step_seconds"]["value"])


def test_a_program_that_does_nothing_on_a_gpu_has_no_time(folder: Path) -> None:
    estimate = json.loads(tonnage(folder, "estimate", "run.trace", "-g", "T4", "--json").stdout)["estimates"][0]
    assert {name: estimate[name] for name in (*TIMES, "time_basis")} == dict.fromkeys((*TIMES, "time_basis"))


def test_several_gpus_are_told_apart(answered: tuple[Path, dict[str, Any]]) -> None:
    place, _ = answered
    arguments = ("estimate", "run.trace", "-g", "T4", "--gpus", "1,2,2,4", "--shard", "zero3", "--samples", "1600")
    report = json.loads(tonnage(place, *arguments, "--json").stdout)
    assert report["epoch_steps"] == 100
    assert [e["gpu_count"] for e in report["estimates"]] == [1, 2, 4]
    assert report["estimates"][1]["power_watts"]["value"] > report["estimates"][0]["power_watts"]["value"]
    shown = tonnage(place, *arguments).stdout
    assert "4 x T4" in shown
    assert "\nfits\n" in shown


def test_a_saved_trace_gives_the_same_answer(answered: tuple[Path, dict[str, Any]]) -> None:
    place, report = answered
    again = json.loads(tonnage(place, "estimate", "run.trace", "-g", "H200", "-g", "T4", "--json").stdout)
    assert {**again, "program": ""} == {**report, "program": ""}


def test_a_page_was_written(answered: tuple[Path, dict[str, Any]]) -> None:
    page = (answered[0] / "a.html").read_text()
    assert page.lower().startswith("<!doctype html>")
    assert "H200" in page


def test_a_program_that_fits_nowhere_is_an_answer_with_exit_code_3(tmp_path: Path) -> None:
    write_small_trace(tmp_path, 1 << 40)
    done = tonnage(tmp_path, "estimate", "run.trace", "-g", "H200", "-g", "T4")
    assert (done.returncode, done.stderr) == (3, "")
    assert "fits on none of the GPUs" in done.stdout
    as_json = tonnage(tmp_path, "estimate", "run.trace", "-g", "H200", "--json")
    assert as_json.returncode == 3
    assert json.loads(as_json.stdout)["estimates"][0]["fits"] is False


def test_into_a_pipe_the_table_is_plain_and_whole(folder: Path) -> None:
    for environment in ({}, {"NO_COLOR": "1"}, {"COLUMNS": "80"}):
        done = tonnage(folder, "estimate", "run.trace", **environment)
        assert "\x1b" not in done.stdout + done.stderr
        assert "…" not in done.stdout
        assert all(name in done.stdout for name in ("H200", "T4", "MI300X"))


def test_warnings_go_to_stderr(tmp_path: Path) -> None:
    write_small_trace(tmp_path)
    trace = read_trace(tmp_path / "run.trace")
    (tmp_path / "run.trace").write_bytes(
        dump_trace(replace(trace, origin=replace(trace.origin, warnings=("mind the gap",))))
    )
    done = tonnage(tmp_path, "estimate", "run.trace", "-g", "H200")
    assert done.stderr == "warning: mind the gap\n"
    assert "mind the gap" not in done.stdout


# -- the command itself ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["estimate", "--help"], ["doctor", "--help"], ["--version"]])
def test_help_is_an_answer(tmp_path: Path, arguments: list[str]) -> None:
    done = tonnage(tmp_path, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert "tonnage" in done.stdout


def test_help_loads_neither_torch_nor_numpy(tmp_path: Path) -> None:
    program = """
import sys
sys.argv = ["tonnage", "--help"]
from tonnage.cli.main import main
try:
    main()
except SystemExit:
    print(sorted({"torch", "numpy"} & set(sys.modules)), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr == "[]\n"


def test_without_a_command_there_is_help_and_no_empty_error(tmp_path: Path) -> None:
    done = tonnage(tmp_path)
    assert (done.returncode, done.stderr) == (2, "")
    assert "estimate" in done.stdout


def test_an_unknown_command_is_one_sentence(tmp_path: Path) -> None:
    is_one_sentence(tonnage(tmp_path, "guess"), 2, "No such command 'guess'", hint=True)


def test_the_doctor_finds_this_installation_in_order(tmp_path: Path) -> None:
    done = tonnage(tmp_path, "doctor", "--json")
    findings = {f["name"]: f for f in json.loads(done.stdout)["findings"]}
    assert done.returncode == 0
    assert findings["virtual GPU"]["state"] == findings["torch"]["state"] == "ok"
    assert all(f["hint"] for f in findings.values() if f["state"] != "ok")

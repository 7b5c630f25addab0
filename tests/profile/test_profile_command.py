"""`tonnage profile` as users type it: unmodified programs in processes of their own."""

import gzip
import json
import os
import signal
import socket
import subprocess
import time
import tomllib
from pathlib import Path

import psutil
import pytest
from kineto import training_trace
from profiled_programs import BY_HAND, CLOSURE, INFERENCE, MAIN, SHORT, TRAINING, TWO_OPTIMIZERS, WORKERS, run, write

from tonnage.profile import python_stacks

PARTS = ("forward", "backward", "optimizer", "h2d", "d2h", "data_wait", "idle")
STEP = """
import torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for number in range({steps}):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    {after}
"""


def left_behind() -> list[str]:
    mine = psutil.Process().children(recursive=True)
    return [" ".join(process.cmdline()) for process in mine if "profile.child" in " ".join(process.cmdline())]


def test_a_training_program_is_profiled_and_stopped(tmp_path: Path) -> None:
    write(tmp_path, TRAINING)
    outputs = ["--flamegraph", "f.svg", "--folded", "f.folded", "--speedscope", "s.json", "--trace", "t.json.gz"]
    done = run(tmp_path, "train.py", "--json", *SHORT, *outputs)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    found = report["indicators"]
    assert (found["device"], found["basis"], found["steps"], found["loader_workers"]) == ("cpu", "measured", 3, 0)
    assert sum(found[f"{part}_seconds"] for part in PARTS) == pytest.approx(found["step_seconds"])
    assert all(found[f"{part}_seconds"] > 0 for part in ("forward", "backward", "optimizer", "data_wait"))
    assert found["program_digest"].startswith("sha256:")
    assert found["peak_host_bytes"] > 50_000_000
    assert {"Net", "Net.body", "Net.head"} <= {row["name"] for row in report["modules"]}
    assert "finished" not in done.stderr
    assert json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes()))["traceEvents"]
    assert "backward;Net;body;" in (tmp_path / "f.folded").read_text()
    assert (tmp_path / "f.svg").read_text().startswith("<svg")
    assert json.loads((tmp_path / "s.json").read_text())["profiles"]


def test_a_program_may_run_on(tmp_path: Path) -> None:
    write(tmp_path, TRAINING)
    done = run(tmp_path, "train.py", "--keep-running", *SHORT, "--", "--epochs", "3")
    assert (done.returncode, "finished --epochs 3" in done.stderr) == (0, True)
    assert "a step takes" in done.stdout
    assert "waiting for data" in done.stdout


def test_inference_has_calls_of_its_leading_module(tmp_path: Path) -> None:
    write(tmp_path, INFERENCE)
    done = run(tmp_path, "train.py", "--json", "--warmup", "12", "--steps", "6")
    report = json.loads(done.stdout)
    calls = {row["name"]: row["calls"] for row in report["modules"]}
    assert report["indicators"]["backward_seconds"] == 0
    assert sum(calls.values()) == pytest.approx(8 / 6)  # the decoder six times, its text's encoder twice


@pytest.mark.parametrize(
    ("program", "calls"),
    [(TWO_OPTIMIZERS, 2), (BY_HAND, 1), (CLOSURE, 2)],
    ids=["two optimizers", "by hand", "closure"],
)
def test_a_turn_of_training_is_what_the_program_repeats(tmp_path: Path, program: str, calls: int) -> None:
    done = run(tmp_path, str(write(tmp_path, program)), "--json", *SHORT)
    report = json.loads(done.stdout)
    assert {row["calls"] for row in report["modules"]} == {calls}
    assert len(report["traced_steps"]) == 3
    assert report["indicators"]["backward_seconds"] > 0
    assert report["indicators"]["forward_seconds"] > 0


def test_loader_workers_are_counted_and_their_copies_of_the_tracker_keep_quiet(tmp_path: Path) -> None:
    done = run(tmp_path, str(write(tmp_path, WORKERS)), "--json", *SHORT)
    assert json.loads(done.stdout)["indicators"]["loader_workers"] == 1
    assert left_behind() == []


def test_a_function_is_profiled_for_as_long_as_needed(tmp_path: Path) -> None:
    write(tmp_path, "import torch\ndef build():\n    return torch.nn.Linear(8, 8), torch.ones(4, 8)\n", "model.py")
    done = run(tmp_path, "model.py:build", "--json", *SHORT)
    assert json.loads(done.stdout)["indicators"]["optimizer_seconds"] > 0, done.stderr


def test_a_trace_is_read(tmp_path: Path) -> None:
    training_trace(4).write(tmp_path / "trace.json.gz")
    done = run(tmp_path, "trace.json.gz")
    assert done.returncode == 0
    assert "copies to the GPU" in done.stdout


def test_predicted_indicators_are_marked(tmp_path: Path) -> None:
    write(tmp_path, TRAINING.replace("Net()", "Net().cuda()").replace("model(batch)", "model(batch.cuda())"))
    done = run(tmp_path, "train.py", "--predict", "--gpu", "H100", "--json")
    found = json.loads(done.stdout)["indicators"]
    assert found["basis"] == "predicted"
    assert found["gpu"].startswith("H100")
    assert sum(found[f"{part}_seconds"] for part in PARTS) == pytest.approx(found["step_seconds"])


@pytest.mark.parametrize(
    ("program", "code", "words"),
    [
        ("import torch\nraise ValueError('mine')", 1, "ValueError: mine"),
        ("import sys, torch\nsys.exit(7)", 7, "exit code 7"),
        (STEP.format(steps=30, after="assert number < 6, 'mine'"), 1, "AssertionError: mine"),
        ("import os, signal, torch\nos.kill(os.getpid(), signal.SIGKILL)", 137, "most likely for memory"),
        ("print('hello')", 1, "ended without loading torch"),
        ("import torch", 1, "ended without a step"),
        (STEP.format(steps=4, after=""), 1, "ended after 4 steps; the window needs 10"),
    ],
    ids=["raises", "exits", "fails in the window", "is killed", "is not torch", "has no step", "is short"],
)
def test_a_program_that_ends_too_early_is_told_in_its_own_words(
    tmp_path: Path, program: str, code: int, words: str
) -> None:
    done = run(tmp_path, str(write(tmp_path, program)), *SHORT)
    assert (done.returncode, words in done.stderr, done.stdout) == (code, True, ""), done.stderr
    assert "tonnage/profile" not in done.stderr  # no frames of ours in its traceback


def test_a_failure_behind_the_window_keeps_report_and_exit_code(tmp_path: Path) -> None:
    program = STEP.format(steps=40, after="assert number < 30, 'mine'")
    done = run(tmp_path, str(write(tmp_path, program)), "--keep-running", *SHORT)
    assert (done.returncode, "a step takes" in done.stdout, "mine" in done.stderr) == (1, True, True)


def test_a_window_that_is_never_reached_has_a_limit(tmp_path: Path) -> None:
    done = run(tmp_path, str(write(tmp_path, "import time\ntime.sleep(60)")), "--timeout", "1")
    assert (done.returncode, "not reached within 1 s" in done.stderr) == (1, True)


def test_ctrl_c_ends_the_program_as_well(tmp_path: Path) -> None:
    write(tmp_path, "import time\nopen('started', 'w').close()\ntime.sleep(60)")
    process = subprocess.Popen(
        [*MAIN, "train.py"], cwd=tmp_path, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # shells make background jobs ignore it
    )  # fmt: skip
    while not (tmp_path / "started").exists():
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (130, "interrupted\n")
    assert left_behind() == []


BEHIND = """
import time
try:
    time.sleep(60)
except KeyboardInterrupt:
    print("mine to end")
    {then}
"""


@pytest.mark.parametrize("then", ["raise", ""], ids=["and fails by it", "and ends well"])
def test_ctrl_c_behind_the_window_ends_the_program_and_keeps_the_report(tmp_path: Path, then: str) -> None:
    write(tmp_path, STEP.format(steps=20, after="") + BEHIND.format(then=then))
    process = subprocess.Popen(
        [*MAIN, "train.py", "--keep-running", *SHORT, "--trace", "t.json", "--folded", "f.folded"], cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # shells make background jobs ignore it
    )  # fmt: skip
    while process.poll() is None and not (tmp_path / "t.json").exists():
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    printed, said = process.communicate(timeout=30)
    assert (process.returncode, "a step takes" in printed, "mine to end" in said) == (130, True, True), said
    assert (tmp_path / "f.folded").read_text()
    assert "tonnage/profile" not in said  # no frames of ours in its traceback
    assert left_behind() == []


def test_a_program_that_ignores_ctrl_c_is_killed_by_the_second_and_the_third_is_ours() -> None:
    from tonnage.profile.interrupts import interrupts_go_to

    sent: list[int] = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with interrupts_go_to(sent.append):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert sent == [signal.SIGINT, signal.SIGKILL]


def test_an_interrupt_that_is_ignored_stays_ignored() -> None:
    from tonnage.profile.interrupts import interrupts_go_to

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts_go_to(lambda number: pytest.fail("it was handed on")):
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--predict"], "belong together"),
        (["--stacks", "both"], "there are no both stacks"),
        (["--flamegraph", "none/f.svg"], "there is no folder none"),
        (["--listen", "nowhere"], "is no HOST:PORT"),
        (["--warmup", "99999"], "warmup = 99999 is impossible"),
    ],
)
def test_wrong_requests_are_refused_before_anything_runs(tmp_path: Path, arguments: list[str], words: str) -> None:
    write(tmp_path, "raise SystemExit('it ran')")
    done = run(tmp_path, "train.py", *arguments)
    assert (done.returncode, words in done.stderr, "it ran" in done.stderr) == (2, True, False), done.stderr


def test_a_port_that_is_taken_is_said_before_the_program_starts(tmp_path: Path) -> None:
    write(tmp_path, "raise SystemExit('it ran')")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = run(tmp_path, "train.py", "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    assert (done.returncode, "Address already in use" in done.stderr, "it ran" in done.stderr) == (2, True, False)


def test_without_torch_it_says_so(tmp_path: Path) -> None:
    hook = """
        import importlib.util
        known = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *more: None if name == "torch" else known(name, *more)
    """
    write(tmp_path, hook, "sitecustomize.py")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = run(tmp_path, str(write(tmp_path, "import torch")), PYTHONPATH=path)
    assert (done.returncode, "needs torch" in done.stderr) == (1, True), done.stderr


def test_without_py_spy_stacks_are_those_of_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_stacks, "find_py_spy", lambda: None)
    stacks, note = python_stacks.sample(0, tmp_path / "none", seconds=1)
    assert (stacks, "stacks are those of modules" in note) == ((), True)
    assert "pip install 'tonnage[profile]'" in note


def test_py_spy_has_an_extra_that_all_holds_and_a_pin() -> None:
    root = Path(__file__).parents[2]
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras["profile"][0].startswith("py-spy")
    assert "profile" in extras["all"][0].partition("[")[2].rstrip("]").split(",")
    assert "\npy-spy==" in (root / "constraints.txt").read_text()


def test_stacks_are_those_of_python_where_py_spy_may_look(tmp_path: Path) -> None:
    if python_stacks.find_py_spy() is None:
        pytest.skip("NO PY-SPY: Python's stacks are not sampled; pip install 'tonnage[profile]'")
    write(tmp_path, STEP.format(steps=10**9, after=""))
    done = run(tmp_path, "train.py", "--stacks", "python", "--json", "--folded", "f.folded", *SHORT)
    notes = json.loads(done.stdout)["notes"]
    if any("py-spy failed" in note for note in notes):
        pytest.skip(f"PY-SPY MAY NOT LOOK HERE: {notes}")
    folded = (tmp_path / "f.folded").read_text()
    assert "<module> (train.py:" in folded
    assert "tonnage/profile" not in folded

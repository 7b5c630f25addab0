"""`tonnage deploy`, `status`, `logs` and `stop`, typed as a user types them, on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def tonnage(tmp_path: Path) -> Run:
    environment = {**os.environ, "TONNAGE_STATE": str(tmp_path / "state"), "KUBECONFIG": str(tmp_path / "none")}
    environment |= {"DOCKER_HOST": "unix:///no/such/socket"}

    def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tonnage", *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment | more, timeout=60
        )

    return run


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "train.py").write_text("import sys\nprint('trained', *sys.argv[1:])\nsys.exit(int(sys.argv[1]))\n")
    return "train.py"


def test_a_program_is_deployed_watched_and_forgotten(tonnage: Run, script: str) -> None:
    done = tonnage("deploy", script, "--name", "first", "--wait", "--json", "--", "5")
    assert done.returncode == 5, done.stderr
    assert json.loads(done.stdout)["exit_code"] == 5
    assert tonnage("logs", "first", "--follow").stdout == "trained 5\n"
    assert "failed" in tonnage("status").stdout
    assert json.loads(tonnage("status", "fir", "--json").stdout)["state"] == "failed"
    assert tonnage("stop", "first").stdout == "first failed\n"
    assert tonnage("stop", "first", "--remove").returncode == 0
    assert json.loads(tonnage("status", "--json").stdout) == {"deployments": []}
    assert tonnage("status", "first").returncode == 4


def test_a_running_one_is_stopped_by_another_command(tonnage: Run, tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text("import time; time.sleep(600)")
    identity = tonnage("deploy", "long.py").stdout.strip()
    assert identity.startswith("long-")
    assert "running" in tonnage("status", identity).stdout
    assert tonnage("stop", identity, "--json").returncode == 0
    assert json.loads(tonnage("status", identity, "--json").stdout)["state"] == "cancelled"


def test_a_dry_run_does_nothing(tonnage: Run, script: str) -> None:
    shown = tonnage(
        "deploy", script, "-e", "kubernetes", "--image", "python:3", "--gpu", "h200", "--dry-run", "--name", "x"
    )
    assert shown.returncode == 0, shown.stderr
    assert "nvidia.com/gpu.product" in shown.stdout
    local = tonnage("deploy", script, "--dry-run", "--json", "--name", "x")
    assert "train.py" in json.loads(local.stdout)["manifest"]
    assert "nothing was deployed yet" in tonnage("status").stderr


IMAGE = ("--image", "python:3")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("network.onnx",), 2, "network.onnx is no script"),
        (("none.py",), 4, "there is no file none.py"),
        (("train.py", "-e", "nomad", *IMAGE), 4, "there is no engine 'nomad'"),
        (("train.py", "-e", "podman"), 2, "podman needs an image"),
        (("train.py", *IMAGE), 2, "local processes have no image"),
        (("train.py", "--name", "Not_Valid"), 2, "'Not_Valid' cannot be a name"),
        (("train.py", "--memory", "4"), 2, "--memory 4: must be a size with its unit"),
        (("train.py", "--memory", "1B"), 2, "too little for any program"),
        (("train.py", "--cpus", "5000"), 3, "5000 CPU cores are wanted"),
        (("train.py", "--memory", "9000TiB"), 3, "too little"),
        (("train.py", "--gpus", "900"), 3, "900 GPUs are wanted"),
        (("train.py", "--gpu", "nonsense"), 4, "unknown GPU"),
        (("train.py", "--port", "a:b"), 2, "is not HERE:THERE"),
        (("train.py", "--mount", "x"), 2, "is not HERE:THERE"),
        (("train.py", "--env", "SURELY_NOT_SET"), 2, "is not set here"),
        (("train.py", "-o", "x=1"), 2, "is no option of this engine"),
        (("train.py", "--folder", "nowhere"), 4, "there is no folder nowhere"),
        (("train.py", "-e", "kubernetes", *IMAGE), 5, "no cluster is known"),
    ],
)
def test_bad_input_is_one_sentence(
    tonnage: Run, script: str, arguments: tuple[str, ...], code: int, words: str
) -> None:
    done = tonnage("deploy", *arguments, "--", "0")
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert done.stderr.count("\n") <= 2
    assert json.loads(tonnage("status", "--json").stdout) == {"deployments": []}, script


@pytest.mark.parametrize("engine", ["podman", "docker"])
def test_a_client_that_is_not_there_is_unreachable(tonnage: Run, script: str, engine: str) -> None:
    done = tonnage("deploy", script, "-e", engine, "--image", "python:3", PATH="/nowhere")
    assert (done.returncode, done.stderr.splitlines()[0]) == (5, f"error: {engine} is not installed on this machine")


@pytest.mark.parametrize("command", ["status", "logs", "stop"])
def test_an_unknown_id_is_not_found(tonnage: Run, command: str) -> None:
    done = tonnage(command, "nothing")
    assert done.returncode == 4
    assert "there is no deployment 'nothing'" in done.stderr

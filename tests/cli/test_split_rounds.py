"""`tonnage split --run --rounds` as people type it: runs, and plans again in between."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

STAGES = Path(__file__).parents[1] / "stages"
MODEL = f"""\
import sys

import torch

sys.path.append({str(STAGES)!r})
from networks import Perceptron, WithLoss


def build():
    return Perceptron(256), torch.randn(64, 256)


def train():
    return WithLoss(Perceptron(32)), (torch.randn(8, 32), torch.randint(0, 32, (8,)))
"""
NODES = """name: pair
nodes:
  - {name: one, cpu: {cores: 1}, memory: 1 GiB}
  - {name: two, cpu: {cores: 1}, memory: 1 GiB, speed: SPEED}
links:
  - {kind: ethernet, bandwidth: 40 Gbit/s}
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return path


def nodes(folder: Path, speed: float = 1.0) -> Path:
    path = folder / "nodes.yaml"
    path.write_text(NODES.replace("SPEED", str(speed)))
    return path


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "tonnage", "split", *map(str, words)]


def split(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*words), capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.slow
def test_a_node_slower_than_its_file_says_is_planned_for(model: Path, tmp_path: Path) -> None:
    """Its file says that two is 50 times as fast as it is: all goes there, and then not."""
    seen = tmp_path / "seen.json"
    result = split(
        f"{model}:build", "--cluster", nodes(tmp_path, 50.0), "--run", "--rounds", "2", "--samples", "8",
        "--save-statistics", seen, "--json",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    first, second = found["rounds"]
    assert "run" not in found
    assert first["stages"] == ["two"]
    assert first["measured_seconds"] > 5 * first["predicted_seconds"]
    assert first["replan"]["seconds"] > 0
    assert first["replan"]["distribution"]["metrics"]["period_seconds"] > 5 * first["predicted_seconds"]
    assert second["predicted_seconds"] == first["replan"]["distribution"]["value"]
    assert second["run"]["report"]["is_equal"] is True
    assert second["replan"] is None
    assert {entry["name"] for entry in json.loads(seen.read_text())["nodes"]} >= {"two"}


@pytest.mark.slow
def test_training_is_run_in_rounds_and_told_in_words(model: Path, tmp_path: Path) -> None:
    result = split(
        f"{model}:train", "--train", "--micro-batches", "2", "--cluster", nodes(tmp_path, 50.0), "--run",
        "--rounds", "2", "--samples", "6",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "round 1: predicted " in result.stdout
    assert "  planned again in " in result.stdout
    assert "round 2: predicted " in result.stdout
    assert "losses and weights: equal" in result.stdout


@pytest.mark.slow
def test_a_node_that_dies_leads_to_a_plan_without_it(model: Path, tmp_path: Path) -> None:
    words = command(
        f"{model}:build", "--cluster", nodes(tmp_path), "--run", "--rounds", "2", "--samples", "8", "--json"
    )  # fmt: skip
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        worker_of(process.pid, "two").kill()
        out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    first, second = json.loads(out)["rounds"]
    assert (first["lost"], first["measured_seconds"], first["run"]) == (["two"], None, None)
    assert "two" in first["failure"]
    assert first["replan"]["pays"] is True
    assert first["replan"]["old_period_seconds"] is None
    assert second["stages"] == ["one"]
    assert second["run"]["report"]["is_equal"] is True


def worker_of(process: int, device: str) -> psutil.Process:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for child in psutil.Process(process).children(recursive=True):
            words = _words(child)
            if "--device" in words and words[words.index("--device") + 1] == device:
                return child
        time.sleep(0.05)
    raise AssertionError(f"no worker of {device} was started")


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # it has ended
        return []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [(("--rounds", "2"), "--rounds is about running"), (("--run", "--rounds", "0"), "'--rounds'")],
)
def test_rounds_that_are_none_get_one_sentence(
    model: Path, tmp_path: Path, words: tuple[str, ...], sentence: str
) -> None:
    result = split(f"{model}:build", "--cluster", nodes(tmp_path), *words)
    assert result.returncode == 2
    assert sentence in result.stderr


def test_rounds_are_for_throughput(model: Path, tmp_path: Path) -> None:
    result = split(
        f"{model}:build", "--cluster", nodes(tmp_path), "--run", "--rounds", "2", "--target", "latency"
    )  # fmt: skip
    assert result.returncode == 2
    assert "a re-plan is for throughput" in result.stderr
    assert result.stdout == ""
